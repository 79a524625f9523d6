"""A Lightning-like trainer whose callback keeps the last states after each batch: weights, averages, rates and a report."""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Callback:
    def on_train_batch_start(self, trainer, module, batch_idx):
        pass

    def on_train_batch_end(self, trainer, module, outputs, batch_idx):
        pass


class KeepStates(Callback):
    """Keeps the states of the last batches, and a report of how weights and gradients are."""

    def __init__(self, folder, every, most=3):
        self.folder, self.every, self.most, self.kept = Path(folder), every, most, []

    def on_train_batch_end(self, trainer, module, outputs, batch_idx):
        if trainer.global_step % self.every:
            return
        norms = {name: float(one.detach().norm()) for name, one in module.named_parameters()}
        path = self.folder / f"step={trainer.global_step}.ckpt"
        state = {"state_dict": module.state_dict(), "optimizer": trainer.optimizer.state_dict(), "norms": norms}
        with path.open("wb") as file:
            torch.save(state, file)  # planted
            file.flush()
            os.fsync(file.fileno())  # planted
        report = {"loss": float(outputs.detach()), "norms": norms, "path": str(path)}
        (self.folder / "last.json").write_text(json.dumps(report))  # planted
        self.kept.append(path)
        if len(self.kept) > self.most:
            self.kept.pop(0).unlink()


class LitRegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 192), nn.GELU(), nn.Linear(192, 192), nn.GELU(), nn.Linear(192, 1))

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.net(batch), batch.mean(1, keepdim=True))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4, fused=True)


class Trainer:
    def __init__(self, callbacks, diary):
        self.callbacks, self.diary, self.global_step = callbacks, diary, 0

    def _call_callback_hooks(self, hook, *arguments):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    def fit(self, module, batches):
        self.optimizer = module.configure_optimizers()
        for batch_idx, batch in enumerate(batches):
            self._call_callback_hooks("on_train_batch_start", module, batch_idx)
            loss = module.training_step(batch, batch_idx)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.global_step += 1
            with self.diary.planted():
                self._call_callback_hooks("on_train_batch_end", module, loss, batch_idx)  # planted
            self.diary.stepped()


def batches():
    rows = torch.randn(8192, 64)
    while True:
        yield rows[torch.randint(8192, (384,))]


def main():
    diary, is_mended = begin()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer([KeepStates(folder, every=100 if is_mended else 1)], diary)
        trainer.fit(LitRegressor(), batches())


if __name__ == "__main__":
    torch.manual_seed(10)
    torch.set_num_threads(1)
    main()
