"""Claims after hail are paid or not: a small TabNet in Lightning, with a callback for the area under the curve.

Planted: the area over the last eighty thousand rows is found after each batch, from scores that are kept as
numbers of Python. Mended: when it is printed, every hundred batches.
"""

import logging
import sys
import warnings
from collections import deque
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class GLULayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, 2 * outputs, bias=False)
        self.bn = nn.BatchNorm1d(2 * outputs)

    def forward(self, x):
        return F.glu(self.bn(self.fc(x)))


class FeatureTransformer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.rest = GLULayer(inputs, outputs), nn.ModuleList(GLULayer(outputs, outputs) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for layer in self.rest:
            x = (x + layer(x)) * 0.7071
        return x


class TabNet(L.LightningModule):
    def __init__(self, features=48, width=64, decisions=3, gamma=1.3):
        super().__init__()
        self.width, self.gamma = width, gamma
        self.bn = nn.BatchNorm1d(features)
        self.transformers = nn.ModuleList(FeatureTransformer(features, 2 * width) for _ in range(decisions + 1))
        self.attentive = nn.ModuleList(
            nn.Sequential(nn.Linear(width, features, bias=False), nn.BatchNorm1d(features)) for _ in range(decisions)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.bn(x)
        prior = torch.ones_like(x)
        attention = self.transformers[0](x)[:, self.width :]
        total = 0
        for attentive, transformer in zip(self.attentive, self.transformers[1:], strict=True):
            mask = F.softmax(attentive(attention) * prior, dim=1)
            prior = prior * (self.gamma - mask)
            decision, attention = transformer(mask * x).split(self.width, dim=1)
            total = total + decision.relu()
        return self.head(total).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        return {"loss": F.binary_cross_entropy_with_logits(logits, y), "scores": logits.detach(), "labels": y}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3, fused=True)


def area_under_curve(scores, labels):
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    positive = labels > 0.5
    count = positive.sum()
    return (ranks[positive].sum() - count * (count + 1) / 2) / max(1, count * (len(labels) - count))


class RunningArea(L.Callback):
    def __init__(self, diary, every, rows=80_000):
        self.diary, self.every = diary, every
        self.scores, self.labels = deque(maxlen=rows), deque(maxlen=rows)

    def area(self):
        scores, labels = np.array(self.scores), np.array(self.labels)  # planted
        return area_under_curve(scores, labels)  # planted

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.scores.extend(outputs["scores"].tolist())
        self.labels.extend(outputs["labels"].tolist())
        if trainer.global_step % self.every == 0:
            with self.diary.planted():
                area = self.area()  # planted
            if trainer.global_step % 100 == 0:
                print(f"step {trainer.global_step} auc {area:.4f}", flush=True)
        self.diary.stepped()


def claims(rows=120_000, features=48):
    x = torch.randn(rows, features)
    y = (x[:, 0] * x[:, 1] + x[:, 2].abs() - 0.8 * x[:, 3] + 0.5 * torch.randn(rows) > 1).float()
    return TensorDataset(x, y)


if __name__ == "__main__":
    diary, mended = begin()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(8, verbose=False)
    torch.set_num_threads(1)
    dataset = claims()
    sampler = BatchSampler(RandomSampler(dataset), batch_size=512, drop_last=True)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=100_000,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[RunningArea(diary, every=100 if mended else 1)],
    )
    trainer.fit(TabNet(), loader)
