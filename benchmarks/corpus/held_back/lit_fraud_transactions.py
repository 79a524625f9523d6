"""A scorer of card transactions as a LightningModule; ranking metrics of the epoch so far are computed each step."""

import logging
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BATCH, BATCHES, MERCHANTS, COUNTRIES, AMOUNTS = 384, 120, 5_000, 60, 24


class Transactions(Dataset):
    """Whole batches are indexed at once: a transaction of its own would be a call each."""

    def __init__(self):
        rows = BATCH * BATCHES
        self.numbers = torch.randn(rows, AMOUNTS)
        self.merchants = torch.randint(MERCHANTS, (rows,))
        self.countries = torch.randint(COUNTRIES, (rows,))
        risk = torch.randn(MERCHANTS)[self.merchants] + torch.randn(COUNTRIES)[self.countries]
        risk += self.numbers[:, :4].sum(1)
        self.is_fraud = (risk > risk.quantile(0.95)).float()

    def __len__(self):
        return BATCHES

    def __getitem__(self, place):
        rows = slice(place * BATCH, (place + 1) * BATCH)
        return self.numbers[rows], self.merchants[rows], self.countries[rows], self.is_fraud[rows]


class CrossLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, first, x):
        return first * self.linear(x) + x


class FraudScorer(L.LightningModule):
    def __init__(self, diary, is_mended):
        super().__init__()
        self.diary, self.is_mended = diary, is_mended
        self.merchant, self.country = nn.Embedding(MERCHANTS, 16), nn.Embedding(COUNTRIES, 8)
        width = AMOUNTS + 16 + 8
        self.cross = nn.ModuleList(CrossLayer(width) for _ in range(3))
        self.deep = nn.Sequential(
            nn.Linear(width, 384), nn.LayerNorm(384), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(384, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1),
        )  # fmt: skip
        self.head = nn.Linear(width + 256, 1)
        self.ranking = MetricCollection({"auroc": BinaryAUROC(), "ap": BinaryAveragePrecision()}, prefix="train/")

    def forward(self, numbers, merchants, countries):
        first = torch.cat([numbers, self.merchant(merchants), self.country(countries)], dim=1)
        x = first
        for layer in self.cross:
            x = layer(first, x)
        return self.head(torch.cat([x, self.deep(first)], dim=1)).squeeze(1)

    def training_step(self, batch, index):
        *inputs, is_fraud = batch
        logits = self(*inputs)
        loss = F.binary_cross_entropy_with_logits(logits, is_fraud, pos_weight=torch.tensor(4.0))
        self.ranking.update(logits.detach().sigmoid(), is_fraud.int())
        if not self.is_mended:
            with self.diary.planted():
                self.log_ranking()  # planted
        return loss

    def log_ranking(self):
        self.log_dict(self.ranking.compute())  # planted

    def on_train_batch_end(self, outputs, batch, index):
        self.diary.stepped()

    def on_train_epoch_end(self):
        ranking = self.ranking.compute()
        self.ranking.reset()
        if self.current_epoch % 10 == 0:
            text = " ".join(f"{name} {value.item():.4f}" for name, value in ranking.items())
            print(f"epoch {self.current_epoch}: {text}", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5_000, eta_min=1e-5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    diary, is_mended = begin()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    torch.set_num_threads(1)
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(Transactions(), batch_size=None, shuffle=True)
    trainer.fit(FraudScorer(diary, is_mended), loader)


if __name__ == "__main__":
    main()
