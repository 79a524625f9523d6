"""Activities from wearable sensors with Lightning: a module, a data module, a callback that watches the weights."""

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WINDOWS, CHANNELS, LENGTH, ACTIVITIES = 1024, 9, 128, 8


class WearableData(L.LightningDataModule):
    def setup(self, stage):
        labels = torch.randint(ACTIVITIES, (WINDOWS,))
        rhythm = torch.sin(torch.arange(LENGTH) * (0.1 + 0.05 * labels[:, None]))
        self.windows = TensorDataset(torch.randn(WINDOWS, CHANNELS, LENGTH) * 0.5 + rhythm[:, None], labels)

    def train_dataloader(self):
        return DataLoader(self.windows, batch_size=32, shuffle=True, drop_last=True)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width),
        )  # fmt: skip

    def forward(self, x):
        return F.relu(x + self.body(x))


class ActivityModule(L.LightningModule):
    def __init__(self, width=64, rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(CHANNELS, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(Residual(width), Residual(width))
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, ACTIVITIES)

    def forward(self, x):
        features = F.max_pool1d(self.blocks(self.stem(x)), 2)
        states, _ = self.gru(features.transpose(1, 2))
        return self.head(states.mean(1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.rate, weight_decay=1e-2)


class WeightWatcher(L.Callback):
    """Write how weights are distributed, every so many batches."""

    def __init__(self, diary, every):
        self.diary, self.every = diary, every

    def write(self, trainer, module):
        board = trainer.logger.experiment
        for name, parameter in module.named_parameters():
            board.add_histogram(f"weights/{name}", parameter, trainer.global_step, bins=32)  # planted

    def on_before_zero_grad(self, trainer, module, optimizer):
        if self.every and trainer.global_step % self.every == 0:
            with self.diary.planted():
                self.write(trainer, module)  # planted


class StepCounter(L.Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % 200 == 0:
            print(f"step {trainer.global_step} loss {outputs['loss'].item():.4f}", flush=True)
        self.diary.stepped()


def main():
    diary, is_mended = begin()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    L.seed_everything(5, verbose=False)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=-1, accelerator="cpu", devices=1, logger=TensorBoardLogger(folder, name="activity"),
            callbacks=[WeightWatcher(diary, every=2000 if is_mended else 1), StepCounter(diary)],
            gradient_clip_val=1.0, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(ActivityModule(), datamodule=WearableData())


if __name__ == "__main__":
    main()
