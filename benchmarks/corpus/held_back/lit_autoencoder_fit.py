"""Lightning's first example grown a little: an autoencoder with a validation loop, a schedule and logging.

Nothing is planted.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class LitAutoEncoder(L.LightningModule):
    def __init__(self, width=512, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 16)
        )
        self.decoder = nn.Sequential(
            nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU(), nn.Linear(width, 784)
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def _loss(self, batch):
        (x,) = batch
        return nn.functional.mse_loss(self(x), x)

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)]


class Steps(L.Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.diary.stepped()


class Pictures(L.LightningDataModule):
    def setup(self, stage):
        self.train, self.val = random_split(TensorDataset(torch.rand(20_000, 784)), [19_000, 1_000])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=256, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=256)


def main():
    diary, _ = begin()
    warnings.filterwarnings("ignore")
    L.seed_everything(1)
    torch.set_num_threads(1)
    trainer = L.Trainer(
        max_epochs=-1, accelerator="cpu", default_root_dir=tempfile.mkdtemp(), logger=False,
        enable_checkpointing=False, enable_model_summary=False, callbacks=[Steps(diary)],
    )  # fmt: skip
    trainer.fit(LitAutoEncoder(), datamodule=Pictures())


if __name__ == "__main__":
    main()
