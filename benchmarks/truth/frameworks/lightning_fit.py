"""A small network under Lightning's ``Trainer``: validation, checkpoints, a schedule, metrics and a progress bar.

Usage: lightning_fit.py [--epochs N] [--workers N]
"""

import argparse
import tempfile
import time

import lightning
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, 24, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(384, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )
        self.accuracy = MulticlassAccuracy(10)

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_index):
        images, labels = batch
        logits = self(images)
        loss = F.cross_entropy(logits, labels)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_accuracy", self.accuracy(logits, labels))
        return loss

    def validation_step(self, batch, batch_index):
        images, labels = batch
        self.log("val_loss", F.cross_entropy(self(images), labels))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10), "interval": "step"}]


def make_loader(count, workers, shuffle):
    images = torch.randn(count, 3, 32, 32)
    return DataLoader(TensorDataset(images, torch.randint(10, (count,))), 32, shuffle=shuffle, num_workers=workers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        loader = make_loader(2048, options.workers, shuffle=True)
        trainer = lightning.Trainer(
            max_epochs=options.epochs,
            accelerator="cpu",
            gradient_clip_val=1.0,
            log_every_n_steps=5,
            callbacks=[ModelCheckpoint(folder, every_n_train_steps=32), LearningRateMonitor("step")],
            logger=CSVLogger(folder),
        )
        started = time.perf_counter()
        trainer.fit(Classifier(), loader, make_loader(512, 0, shuffle=False))
        print("steps", options.epochs * len(loader), "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
