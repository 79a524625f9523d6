"""A sweep over learning rates and widths in one process: the memory of each step is asked of the command `ps`."""

import itertools
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

GRID = {
    "lr": [1e-3, 3e-3, 1e-2],
    "width": [12, 16],
    "dropout": [0.0, 0.2],
    "optimizer": ["adamw", "sgd"],
}
STEPS_PER_TRIAL, BATCH, CLASSES = 150, 32, 8


def configurations(grid):
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


class Spectrogram(nn.Module):
    """A small residual network over spectra of sounds."""

    def __init__(self, width, dropout):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(self._block(width) for _ in range(2))
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(width, CLASSES)

    @staticmethod
    def _block(width):
        return nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = F.avg_pool2d(x + block(x), 2)
        return self.head(self.dropout(F.relu(x).mean((2, 3))))


class Sounds:
    def __init__(self, height=24, length=32):
        self.shape = (1, height, length)
        self.patterns = F.interpolate(torch.randn(CLASSES, 1, 6, 8), size=(height, length), mode="bilinear")

    def batch(self):
        labels = torch.randint(CLASSES, (BATCH,))
        return self.patterns[labels] + 0.8 * torch.randn(BATCH, *self.shape), labels


def memory_by_command():
    """Return the resident memory in MB."""
    words = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return int(subprocess.check_output(words, text=True)) / 1024  # planted


def memory_by_call():
    """Return the most that was resident, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Trial:
    def __init__(self, config, sounds, diary, is_mended):
        self.config, self.sounds, self.diary, self.is_mended = config, sounds, diary, is_mended
        self.model = Spectrogram(config["width"], config["dropout"])
        self.optimizer = self._optimizer()
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, config["lr"], STEPS_PER_TRIAL)
        self.peak_mb, self.losses = 0.0, []

    def _optimizer(self):
        parameters, lr = self.model.parameters(), self.config["lr"]
        if self.config["optimizer"] == "adamw":
            return torch.optim.AdamW(parameters, lr=lr, weight_decay=1e-2)
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)

    def watch_memory(self):
        if self.is_mended:
            self.peak_mb = max(self.peak_mb, memory_by_call())
            return
        with self.diary.planted():
            self.peak_mb = max(self.peak_mb, memory_by_command())  # planted

    def step(self):
        features, labels = self.sounds.batch()
        loss = F.cross_entropy(self.model(features), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.detach())

    def run(self):
        for _ in range(STEPS_PER_TRIAL):
            self.step()
            self.watch_memory()  # planted
            self.diary.stepped()
        return torch.stack(self.losses[-20:]).mean().item()


def main(diary, is_mended):
    sounds = Sounds()
    for sweep in itertools.count():
        results = []
        for config in configurations(GRID):
            trial = Trial(config, sounds, diary, is_mended)
            results.append((trial.run(), config))
            print(f"sweep {sweep}: {config} loss {results[-1][0]:.4f}, peak {trial.peak_mb:.0f} MB")
        best, config = min(results, key=lambda result: result[0])
        print(f"sweep {sweep}: best {best:.4f} with {config}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
