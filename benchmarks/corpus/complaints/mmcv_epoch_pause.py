"""A classifier of small pictures in the manner of mmcv: a runner with hooks that goes through a small data set.

Source: open-mmlab/mmcv, issues 1640 and 1912 on `time.sleep(2)` in EpochBasedRunner. The runner sleeps two seconds at
the start of each epoch, against a deadlock of loaders that a user once met. A maintainer: "in most cases the deadlock
will not happen so this line can be removed from your local mmcv which will speed up your training". The trainers of
open-edge-platform/geti did so for one device (pull request 1174). The shorter the epochs, the larger the part; no
figure is named. The fix is to take the line out.
"""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CONFIG = {
    "data": {"samples_per_gpu": 32, "workers_per_gpu": 1, "images": 1920, "size": 48},
    "optimizer": {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4},
    "log_config": {"interval": 30},
}


class TexturesDataset(Dataset):
    """Stripes of ten directions under noise, flipped at random."""

    def __init__(self, images, size, classes=10):
        self.labels = torch.arange(images) % classes
        angle = self.labels * torch.pi / classes
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        phase = angle.cos()[:, None, None] * rows + angle.sin()[:, None, None] * columns
        self.images = (0.8 * phase).sin()[:, None] + torch.randn(images, 3, size, size)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        return {"img": image.flip(1, 2) if torch.rand(()) < 0.5 else image, "gt_label": self.labels[index]}


class ImageClassifier(nn.Module):
    def __init__(self, widths=(24, 48, 96), classes=10):
        super().__init__()
        layers, before = [], 3
        for width in widths:
            for stride in (1, 2):
                layers += [nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
                before = width
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)

    def train_step(self, data):
        scores = self.head(self.backbone(data["img"]).mean((2, 3)))
        loss = nn.functional.cross_entropy(scores, data["gt_label"])
        accuracy = (scores.argmax(1) == data["gt_label"]).float().mean()
        log_vars = {"loss": loss.item(), "accuracy": accuracy.item()}
        return {"loss": loss, "log_vars": log_vars, "num_samples": len(scores)}


class OptimizerHook:
    def after_train_iter(self, runner):
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        runner.optimizer.step()


class TextLoggerHook:
    def __init__(self, interval):
        self.interval, self.values = interval, []

    def after_train_iter(self, runner):
        self.values.append(runner.outputs["log_vars"])
        if len(self.values) == self.interval:
            means = {name: sum(one[name] for one in self.values) / self.interval for name in self.values[0]}
            text = ", ".join(f"{name}: {value:.4f}" for name, value in means.items())
            print(f"Epoch [{runner.epoch + 1}][{runner.inner_iter + 1}] {text}", flush=True)
            self.values.clear()


class EpochBasedRunner:
    """Trains epoch by epoch and calls its hooks."""

    def __init__(self, model, optimizer, diary, epoch_pause):
        self.model, self.optimizer, self.diary, self.epoch_pause = model, optimizer, diary, epoch_pause
        self.epoch, self.hooks, self.outputs, self.inner_iter = 0, [], None, 0

    def call_hook(self, name):
        for hook in self.hooks:
            getattr(hook, name, lambda runner: None)(self)

    def prevent_deadlock(self):
        with self.diary.planted():
            time.sleep(self.epoch_pause)  # planted

    def train(self, data_loader):
        self.model.train()
        self.call_hook("before_train_epoch")
        if self.epoch_pause:
            self.prevent_deadlock()  # planted
        for self.inner_iter, data_batch in enumerate(data_loader):
            self.outputs = self.model.train_step(data_batch)
            self.call_hook("after_train_iter")
            self.diary.stepped()
        self.call_hook("after_train_epoch")
        self.epoch += 1

    def run(self, data_loader, max_epochs):
        while self.epoch < max_epochs:
            self.train(data_loader)


def build_dataloader(data):
    dataset = TexturesDataset(data["images"], data["size"])
    workers = {"num_workers": data["workers_per_gpu"], "persistent_workers": True}
    return DataLoader(dataset, data["samples_per_gpu"], shuffle=True, drop_last=True, **workers)


def main():
    diary, is_mended = begin()
    model = ImageClassifier()
    optimizer = torch.optim.SGD(model.parameters(), **CONFIG["optimizer"])
    runner = EpochBasedRunner(model, optimizer, diary, epoch_pause=0 if is_mended else 2)  # planted
    runner.hooks += [OptimizerHook(), TextLoggerHook(**CONFIG["log_config"])]
    runner.run(build_dataloader(CONFIG["data"]), max_epochs=10**6)


if __name__ == "__main__":
    torch.manual_seed(13)
    torch.set_num_threads(1)
    main()
