"""A model with `compile` and `fit` and callbacks, as Keras has them, over torch.

Nothing is planted: the log of each batch is a line in a file, and validation and the checkpoint come once in an epoch.
"""

import csv
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Callback:
    def set_model(self, model):
        self.model = model

    def on_train_begin(self): ...

    def on_epoch_begin(self, epoch): ...

    def on_batch_end(self, batch, logs): ...

    def on_epoch_end(self, epoch, logs): ...


class CSVLogger(Callback):
    """A line for each batch; the file starts anew when it has become long."""

    def __init__(self, path, longest=5_000):
        self.path, self.longest = path, longest

    def on_train_begin(self):
        self.lines, self.file = 0, self.path.open("w", newline="")
        self.writer = csv.writer(self.file)

    def on_batch_end(self, batch, logs):
        self.writer.writerow([f"{time.time():.3f}", batch, f"{logs['loss']:.5f}", f"{logs['accuracy']:.4f}"])
        self.lines += 1
        if self.lines == self.longest:
            self.file.close()
            self.on_train_begin()


class History(Callback):
    def on_train_begin(self):
        self.history = {}

    def on_epoch_end(self, epoch, logs):
        for key, value in logs.items():
            self.history.setdefault(key, []).append(value)


class ModelCheckpoint(Callback):
    def __init__(self, path, monitor="val_loss"):
        self.path, self.monitor, self.best = path, monitor, float("inf")

    def on_epoch_end(self, epoch, logs):
        if logs[self.monitor] < self.best:
            self.best = logs[self.monitor]
            torch.save(self.model.module.state_dict(), self.path)


class ReduceLROnPlateau(Callback):
    def __init__(self, factor=0.5, patience=5, lowest=1e-4):
        self.factor, self.patience, self.lowest = factor, patience, lowest
        self.best, self.waited = float("inf"), 0

    def on_epoch_end(self, epoch, logs):
        self.waited = 0 if logs["val_loss"] < self.best else self.waited + 1
        self.best = min(self.best, logs["val_loss"])
        if self.waited >= self.patience:
            group = self.model.optimizer.param_groups[0]
            group["lr"], self.waited = max(self.lowest, group["lr"] * self.factor), 0


class Diarist(Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_batch_end(self, batch, logs):
        self.diary.stepped()


class Mean:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count):
        self.total, self.count = self.total + value * count, self.count + count

    def result(self):
        return self.total / max(1, self.count)


class Model:
    def __init__(self, module):
        self.module, self.stop_training = module, False

    def compile(self, optimizer, loss):
        self.optimizer, self.loss = optimizer(self.module.parameters()), loss
        self.metrics = {"loss": Mean(), "accuracy": Mean()}

    def _track(self, loss, predicted, y):
        self.metrics["loss"].update(loss.item(), len(y))
        self.metrics["accuracy"].update((predicted.argmax(1) == y).float().mean().item(), len(y))
        return {key: metric.result() for key, metric in self.metrics.items()}

    def train_step(self, x, y):
        self.module.train()
        predicted = self.module(x)
        loss = self.loss(predicted, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self._track(loss.detach(), predicted.detach(), y)

    @torch.no_grad()
    def evaluate(self, x, y, batch_size):
        self.module.eval()
        self._reset()
        for rows in torch.arange(len(x)).split(batch_size):
            predicted = self.module(x[rows])
            logs = self._track(self.loss(predicted, y[rows]), predicted, y[rows])
        return {f"val_{key}": value for key, value in logs.items()}

    def _reset(self):
        for metric in self.metrics.values():
            metric.reset()

    def fit(self, x, y, batch_size, epochs, validation_data, callbacks):
        for callback in callbacks:
            callback.set_model(self)
            callback.on_train_begin()
        for epoch in range(epochs):
            self._reset()
            for callback in callbacks:
                callback.on_epoch_begin(epoch)
            for batch, rows in enumerate(torch.randperm(len(x)).split(batch_size)):
                logs = self.train_step(x[rows], y[rows])
                for callback in callbacks:
                    callback.on_batch_end(batch, logs)
            logs |= self.evaluate(*validation_data, batch_size)
            for callback in callbacks:
                callback.on_epoch_end(epoch, logs)
            print(f"Epoch {epoch + 1}: " + " - ".join(f"{key}: {value:.4f}" for key, value in logs.items()))


def conv_block(before, after):
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]


def main(diary, _):
    module = nn.Sequential(
        *conv_block(1, 24), *conv_block(24, 48), *conv_block(48, 64), nn.Flatten(), nn.Dropout(0.3), nn.Linear(576, 10)
    )
    prototypes = F.interpolate(torch.randn(10, 1, 7, 7), size=28, mode="bilinear")
    y = torch.randint(10, (6656,))
    x = prototypes[y] + 0.7 * torch.randn(len(y), 1, 28, 28)
    folder = Path(tempfile.gettempdir()) / "keras_fit_callbacks"
    folder.mkdir(exist_ok=True)
    model = Model(module)
    model.compile(lambda parameters: torch.optim.Adam(parameters, lr=1e-3), F.cross_entropy)
    callbacks = [
        History(),
        CSVLogger(folder / "log.csv"),
        ModelCheckpoint(folder / "best.pt"),
        ReduceLROnPlateau(),
        Diarist(diary),
    ]
    model.fit(x[512:], y[512:], 32, 10**9, (x[:512], y[:512]), callbacks)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
