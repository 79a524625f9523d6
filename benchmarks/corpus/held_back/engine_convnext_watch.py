"""A small ConvNeXt with an engine of events; a watcher takes histograms and quantiles at every step."""

import os
import sys
from collections import defaultdict
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, classes=10, dims=(24, 48), depths=(2, 3)):
        super().__init__()
        self.stem = nn.Conv2d(3, dims[0], 2, stride=2)
        self.stage1 = nn.Sequential(*(ConvNeXtBlock(dims[0]) for _ in range(depths[0])))
        self.merge = nn.Conv2d(dims[0], dims[1], 2, stride=2)
        self.stage2 = nn.Sequential(*(ConvNeXtBlock(dims[1]) for _ in range(depths[1])))
        self.head = nn.Linear(dims[1], classes)

    def forward(self, x):
        x = self.stage2(self.merge(self.stage1(self.stem(x))))
        return self.head(x.mean((2, 3)))


class Engine:
    """Calls the handlers of its events around each step."""

    def __init__(self, model, optimizer, images, labels, batch_size=16):
        self.model, self.optimizer, self.images, self.labels = model, optimizer, images, labels
        self.batch_size, self.iteration, self.handlers = batch_size, 0, defaultdict(list)

    def on(self, event):
        def add(handler):
            self.handlers[event].append(handler)
            return handler

        return add

    def fire(self, event):
        for handler in self.handlers[event]:
            handler(self)

    def update(self, rows):
        logits = self.model(self.images[rows])  # planted
        self.loss = F.cross_entropy(logits, self.labels[rows], label_smoothing=0.1)
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()
        self.optimizer.step()

    def run(self):
        while True:
            for rows in torch.randperm(len(self.images)).split(self.batch_size):
                self.iteration += 1
                self.fire("iteration_started")
                self.update(rows)  # planted
                self.fire("iteration_completed")


class ActivationWatch:
    """Histograms and quantiles of what each block puts out, for the run's page."""

    def __init__(self, engine, diary, every):
        self.engine, self.diary, self.every, self.latest = engine, diary, every, {}
        for name, module in engine.model.named_modules():
            if isinstance(module, ConvNeXtBlock):
                module.register_forward_hook(lambda _, __, output, name=name: self.record(name, output))

    def record(self, name, output):
        if self.engine.iteration % self.every:
            return
        with self.diary.planted():
            values = output.detach().numpy()  # planted
            self.latest[name] = np.histogram(values, bins=64), np.quantile(values, (0.01, 0.5, 0.99))  # planted


def main(diary, is_mended):
    images = torch.randn(960, 3, 32, 32)
    labels = (images[:, :, :16].mean((1, 2, 3)) * 200).long().remainder(10)
    model = ConvNeXt()
    engine = Engine(model, torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05), images, labels)
    watch = ActivationWatch(engine, diary, every=250 if is_mended else 1)

    @engine.on("iteration_completed")
    def write_diary(engine):
        diary.stepped()

    @engine.on("iteration_completed")
    def log_loss(engine):
        if engine.iteration % 50 == 0:
            print(f"[{engine.iteration}] loss {engine.loss.item():.4f}, {len(watch.latest)} histograms", flush=True)

    engine.run()  # planted


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
