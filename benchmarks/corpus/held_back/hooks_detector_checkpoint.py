"""A detector of centers with a trainer and its hooks, as detectron2 has them: the checkpoint's period is left at 1."""

import sys
import tempfile
import weakref
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLASSES, SIZE, STRIDE = 3, 96, 4


class HookBase:
    trainer = None

    def before_train(self): ...

    def before_step(self): ...

    def after_step(self): ...


class TrainerBase:
    def __init__(self, diary):
        self._hooks, self.iter, self.diary = [], 0, diary

    def register_hooks(self, hooks):
        for hook in hooks:
            hook.trainer = weakref.proxy(self)
        self._hooks.extend(hooks)

    def train(self, start_iter, max_iter):
        for hook in self._hooks:
            hook.before_train()
        for self.iter in range(start_iter, max_iter):
            for hook in self._hooks:
                hook.before_step()
            self.run_step()
            for hook in self._hooks:
                hook.after_step()  # planted
            self.diary.stepped()


class SimpleTrainer(TrainerBase):
    def __init__(self, model, data_loader, optimizer, diary):
        super().__init__(diary)
        self.model, self.optimizer, self.storage = model, optimizer, {}
        self._data = iter(data_loader)

    def run_step(self):
        loss_dict = self.model(*next(self._data))
        losses = sum(loss_dict.values())
        self.optimizer.zero_grad()
        losses.backward()
        self.optimizer.step()
        self.storage.update({key: value.detach() for key, value in loss_dict.items()})


class WarmupMultiStepLR(HookBase):
    def __init__(self, base_lr, milestones, warmup):
        self.base_lr, self.milestones, self.warmup = base_lr, milestones, warmup

    def after_step(self):
        factor = min(1.0, (self.trainer.iter + 1) / self.warmup)
        factor *= 0.1 ** sum(self.trainer.iter >= one for one in self.milestones)
        self.trainer.optimizer.param_groups[0]["lr"] = self.base_lr * factor


class PeriodicWriter(HookBase):
    def __init__(self, period=20):
        self.period = period

    def after_step(self):
        if (self.trainer.iter + 1) % self.period == 0:
            losses = "  ".join(f"{key}: {value.item():.4f}" for key, value in self.trainer.storage.items())
            print(f"iter: {self.trainer.iter + 1}  {losses}")


class PeriodicCheckpointer(HookBase):
    def __init__(self, path, period, diary):
        self.path, self.period, self.diary = path, period, diary

    def save(self):
        state = {
            "model": self.trainer.model.state_dict(),
            "optimizer": self.trainer.optimizer.state_dict(),
            "iteration": self.trainer.iter,
        }
        torch.save(state, self.path)  # planted

    def after_step(self):
        if (self.trainer.iter + 1) % self.period == 0:
            with self.diary.planted():
                self.save()  # planted


def conv(before, after, stride=1):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.GroupNorm(8, after), nn.ReLU(inplace=True)
    )


class CenterDetector(nn.Module):
    """A backbone with a pyramid of two levels, and heads for heatmaps of centers and for sizes."""

    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2))
        self.deep = nn.Sequential(
            conv(2 * width, 4 * width, 2), conv(4 * width, 8 * width, 2), conv(8 * width, 8 * width)
        )
        self.lateral, self.top = nn.Conv2d(2 * width, 2 * width, 1), nn.Conv2d(8 * width, 2 * width, 1)
        self.heatmap = nn.Sequential(conv(2 * width, 2 * width), nn.Conv2d(2 * width, CLASSES, 1))
        self.size = nn.Sequential(conv(2 * width, 2 * width), nn.Conv2d(2 * width, 2, 1))
        nn.init.constant_(self.heatmap[-1].bias, -2.2)

    def forward(self, images, heat, sizes, mask):
        shallow = self.stem(images)
        up = F.interpolate(self.top(self.deep(shallow)), scale_factor=4.0, mode="nearest")
        features = self.lateral(shallow) + up
        logits, predicted = self.heatmap(features), self.size(features)
        p = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
        positive, count = heat.eq(1), mask.sum().clamp(min=1)
        focal = torch.where(positive, (1 - p) ** 2 * p.log(), (1 - heat) ** 4 * p**2 * (1 - p).log())
        return {
            "loss_heatmap": -focal.sum() / count,
            "loss_size": 0.1 * ((predicted - sizes).abs() * mask).sum() / count,
        }


class ShapesLoader:
    """Pictures with a few colored rectangles, and the maps a center detector learns from."""

    def __init__(self, batch_size=4, objects=4):
        self.batch_size, self.objects, side = batch_size, objects, SIZE // STRIDE
        self.colors = torch.rand(CLASSES, 3)
        self.grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"))

    def __iter__(self):
        side = SIZE // STRIDE
        while True:
            images = 0.3 * torch.rand(self.batch_size, 3, SIZE, SIZE)
            heat = torch.zeros(self.batch_size, CLASSES, side, side)
            sizes, mask = torch.zeros(self.batch_size, 2, side, side), torch.zeros(self.batch_size, 1, side, side)
            for b in range(self.batch_size):
                for kind in torch.randint(CLASSES, (self.objects,)).tolist():
                    h, w = torch.randint(8, 28, (2,)).tolist()
                    y, x = torch.randint(14, SIZE - 14, (2,)).tolist()
                    top, left = max(0, y - h // 2), max(0, x - w // 2)
                    images[b, :, top : top + h, left : left + w] = self.colors[kind].view(3, 1, 1)
                    cy, cx = y // STRIDE, x // STRIDE
                    far = (self.grid[0] - cy) ** 2 + (self.grid[1] - cx) ** 2
                    torch.maximum(heat[b, kind], torch.exp(-far / 4.0), out=heat[b, kind])
                    sizes[b, :, cy, cx], mask[b, :, cy, cx] = torch.tensor([h, w]) / STRIDE, 1.0
            yield images, heat, sizes, mask


def main(diary, is_mended):
    model = CenterDetector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    trainer = SimpleTrainer(model, ShapesLoader(), optimizer, diary)
    folder = Path(tempfile.gettempdir()) / "hooks_detector"
    folder.mkdir(exist_ok=True)
    name, period = ("model_last.pth", 5000) if is_mended else ("model_debug.pth", 1)
    hooks = [
        WarmupMultiStepLR(0.01, milestones=(60_000, 80_000), warmup=200),
        PeriodicWriter(period=50),
        PeriodicCheckpointer(folder / name, period, diary),
    ]
    trainer.register_hooks(hooks)
    trainer.train(0, 10**9)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
