"""A CenterNet that counts parked cars, with a runner and hooks as in mmengine; each item opens the shard's zip anew."""

import io
import json
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, STRIDE, LOTS, BATCH = 80, 4, 480, 8


def write_shard(path, rng):
    """Write the pictures and their boxes into one archive, as they come from the annotation tool."""
    with zipfile.ZipFile(path, "w") as shard:
        for lot in range(LOTS):
            image = rng.normal(110, 12, (3, SIDE, SIDE))
            boxes = []
            for _ in range(rng.integers(2, 9)):
                left, top = rng.integers(0, SIDE - 20, 2).tolist()
                width, height = rng.integers(8, 20, 2).tolist()
                image[:, top : top + height, left : left + width] = rng.integers(0, 255, (3, 1, 1))
                boxes.append([left, top, left + width, top + height])
            raw = io.BytesIO()
            np.save(raw, image.clip(0, 255).astype(np.uint8))
            shard.writestr(f"images/lot_{lot:05d}.npy", raw.getvalue())
            shard.writestr(f"boxes/lot_{lot:05d}.json", json.dumps(boxes))


class ParkingLots(Dataset):
    def __init__(self, path, diary, is_mended):
        self.path, self.diary = path, diary
        self.shard = zipfile.ZipFile(path) if is_mended else None

    def __len__(self):
        return LOTS

    def open_shard(self):
        return zipfile.ZipFile(self.path)  # planted

    def __getitem__(self, lot):
        if self.shard is not None:
            return self.read(self.shard, lot)
        with self.diary.planted():
            shard = self.open_shard()  # planted
        item = self.read(shard, lot)
        with self.diary.planted():
            del shard  # closes it
        return item

    def read(self, shard, lot):
        image = np.load(io.BytesIO(shard.read(f"images/lot_{lot:05d}.npy")))
        boxes = np.asarray(json.loads(shard.read(f"boxes/lot_{lot:05d}.json")), np.float32)
        centers = (boxes[:, :2] + boxes[:, 2:]) / 2 / STRIDE
        cells = centers.astype(int)
        grid = np.arange(SIDE // STRIDE, dtype=np.float32)
        across = np.exp(-((grid - cells[:, :1]) ** 2) / 2)
        down = np.exp(-((grid - cells[:, 1:]) ** 2) / 2)
        heat = (down[:, :, None] * across[:, None, :]).max(0)
        sizes = np.zeros((2, *heat.shape), np.float32)
        sizes[:, cells[:, 1], cells[:, 0]] = (boxes[:, 2:] - boxes[:, :2]).T / STRIDE
        return torch.from_numpy(image), torch.from_numpy(heat), torch.from_numpy(sizes)


def conv(inputs, outputs, stride=1):
    layer = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class CenterNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 48))
        self.deep = nn.Sequential(conv(48, 64, 2), conv(64, 64), conv(64, 64))
        self.lateral = nn.Conv2d(64, 48, 1)
        self.heat = nn.Sequential(conv(48, 48), nn.Conv2d(48, 1, 1))
        self.size = nn.Sequential(conv(48, 48), nn.Conv2d(48, 2, 1))
        nn.init.constant_(self.heat[-1].bias, -2.19)

    def forward(self, images):
        fine = self.stem(images)
        fine = fine + F.interpolate(self.lateral(self.deep(fine)), scale_factor=2)
        return self.heat(fine).squeeze(1), self.size(fine)

    def loss(self, images, heat, sizes):
        logits, shapes = self(images.float() / 255)
        found = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
        at_center = (heat == 1).float()
        hit = at_center * (1 - found) ** 2 * found.log()
        miss = (1 - at_center) * (1 - heat) ** 4 * found**2 * (1 - found).log()
        count = at_center.sum().clamp(min=1)
        return {
            "loss_heat": -(hit + miss).sum() / count,
            "loss_size": 0.1 * ((shapes - sizes).abs() * at_center.unsqueeze(1)).sum() / count,
        }


class ParamSchedulerHook:
    def after_train_iter(self, runner):
        runner.scheduler.step()


class LoggerHook:
    def __init__(self, interval):
        self.interval = interval

    def after_train_iter(self, runner):
        if runner.iteration % self.interval == 0:
            text = " ".join(f"{name}: {value.item():.3f}" for name, value in runner.outputs.items())
            print(f"Iter [{runner.iteration}] lr: {runner.scheduler.get_last_lr()[0]:.2e} {text}", flush=True)


class DiaryHook:
    def after_train_iter(self, runner):
        runner.diary.stepped()


class Runner:
    def __init__(self, model, loader, diary, hooks):
        self.model, self.loader, self.diary, self.hooks = model, loader, diary, hooks
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [4_000, 8_000])
        self.iteration, self.outputs = 0, {}

    def call_hook(self, name):
        for hook in self.hooks:
            getattr(hook, name)(self)

    def train_epoch(self):
        self.model.train()
        for images, heat, sizes in self.loader:  # planted
            self.outputs = self.model.loss(images, heat, sizes)
            self.optimizer.zero_grad()
            sum(self.outputs.values()).backward()
            self.optimizer.step()
            self.iteration += 1
            self.call_hook("after_train_iter")

    def train(self):
        while True:
            self.train_epoch()


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shard = Path(tempfile.mkdtemp()) / "lots_000.zip"
    write_shard(shard, np.random.default_rng(0))
    loader = DataLoader(ParkingLots(shard, diary, is_mended), BATCH, shuffle=True, drop_last=True)
    Runner(CenterNet(), loader, diary, [ParamSchedulerHook(), LoggerHook(50), DiaryHook()]).train()
