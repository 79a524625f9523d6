"""An engine with events and handlers that trains a residual network: averages, checkpoints by the clock, validation.

Nothing is planted: a checkpoint comes every three minutes, and each handler is quick.
"""

import copy
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Engine:
    """Runs a step for each batch and tells its handlers."""

    def __init__(self, process):
        self.process, self.handlers = process, defaultdict(list)
        self.iteration, self.epoch, self.output = 0, 0, None

    def on(self, event, every=1):
        def attach(handler):
            self.handlers[event].append((every, handler))
            return handler

        return attach

    def fire(self, event, count):
        for every, handler in self.handlers[event]:
            if count % every == 0:
                handler(self)

    def run(self, loader):
        while True:
            self.epoch += 1
            for batch in loader:
                self.output = self.process(self, batch)
                self.iteration += 1
                self.fire("iteration", self.iteration)
            self.fire("epoch", self.epoch)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return F.relu(x + self.body(x))


def network(classes, small=32, big=64):
    return nn.Sequential(
        nn.Conv2d(3, small, 4, 2, 1), nn.BatchNorm2d(small), nn.ReLU(), Residual(small),
        nn.Conv2d(small, big, 3, 2, 1), Residual(big), Residual(big), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(big, classes),
    )  # fmt: skip


def images(count, colors):
    labels = torch.randint(len(colors), (count,))
    return TensorDataset(colors[labels] + 0.4 * torch.randn(count, 3, 32, 32), labels)


def main(diary, _):
    torch.set_num_threads(1)
    torch.manual_seed(14)
    colors = torch.randn(12, 3, 1, 1) * 0.3
    loader = DataLoader(images(3200, colors), 24, shuffle=True, drop_last=True)
    validation = DataLoader(images(192, colors), 48)
    model = network(12)
    average = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def process(engine, batch):
        x, y = batch
        shift = torch.randint(-3, 4, (2,)).tolist()
        x = torch.roll(x.flip(3) if torch.rand(()) < 0.5 else x, shift, (2, 3))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    engine = Engine(process)
    folder, saved_at = Path(tempfile.mkdtemp()), time.monotonic()

    @engine.on("iteration")
    def follow(engine):
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.002)
        diary.stepped()

    @engine.on("iteration", every=50)
    def log(engine):
        with (folder / "log.csv").open("a") as file:
            file.write(f"{engine.iteration},{engine.output.item():.4f}\n")

    @engine.on("iteration", every=10)
    def save(engine):
        nonlocal saved_at
        if time.monotonic() - saved_at > 180:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "last.pt")
            saved_at = time.monotonic()

    @engine.on("epoch")
    def validate(engine):
        torch._foreach_copy_(list(average.buffers()), list(model.buffers()))
        with torch.inference_mode():
            right = sum((average(x).argmax(1) == y).sum() for x, y in validation)
        print(f"epoch {engine.epoch} accuracy {right.item() / 192:.3f}", flush=True)

    engine.run(loader)


if __name__ == "__main__":
    main(*begin())
