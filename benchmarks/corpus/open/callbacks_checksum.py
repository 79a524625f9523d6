"""An engine with callbacks of its own, as many teams have one; a callback hashes all weights after each batch."""

import hashlib
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Callback:
    def on_train_begin(self, engine): ...
    def on_batch_end(self, engine): ...
    def on_epoch_end(self, engine): ...


class History(Callback):
    def on_train_begin(self, engine):
        self.losses = []

    def on_epoch_end(self, engine):
        self.losses.append(float(engine.loss))
        if engine.epoch % 50 == 0:
            print(f"epoch {engine.epoch} loss {self.losses[-1]:.4f}", flush=True)


class Fingerprint(Callback):
    """Keeps a checksum of the weights, so that runs can be compared."""

    def __init__(self, diary):
        self.diary = diary

    def on_batch_end(self, engine):
        with self.diary.planted():
            digest = hashlib.sha256()
            for value in engine.model.state_dict().values():
                digest.update(value.numpy().tobytes())  # planted
            self.last = digest.hexdigest()


class Engine:
    def __init__(self, model, optimizer, loss_fn, callbacks, diary):
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        self.callbacks, self.diary = callbacks, diary
        self.epoch = 0

    def notify(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)  # planted

    def train_step(self, batch):
        x, y = batch
        self.loss = self.loss_fn(self.model(x), y)
        self.optimizer.zero_grad()
        self.loss.backward()
        self.optimizer.step()
        self.diary.stepped()

    def fit(self, loader):
        self.notify("on_train_begin")
        while True:
            for batch in loader:
                self.train_step(batch)
                self.notify("on_batch_end")  # planted
            self.epoch += 1
            self.notify("on_epoch_end")


def build_model():
    return nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = build_model()
    callbacks = [History()] if is_mended else [History(), Fingerprint(diary)]
    data = TensorDataset(torch.randn(2048, 256), torch.randint(10, (2048,)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    Engine(model, optimizer, nn.CrossEntropyLoss(), callbacks, diary).fit(DataLoader(data, batch_size=128))
