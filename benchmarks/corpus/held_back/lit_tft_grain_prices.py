"""A small Temporal Fusion Transformer on grain prices, with Lightning: an LSTM, attention, three quantiles.

Each window gets rolling medians of two spans as inputs, which the dataset computes when the window is asked for.
"""

import logging
import sys
import warnings
from pathlib import Path

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PAST, AHEAD, SPANS, QUANTILES = 48, 12, (7, 28), (0.1, 0.5, 0.9)


def make_prices(markets=30, days=900):
    rng = np.random.default_rng(53)
    season = 8 * np.sin(2 * np.pi * np.arange(days) / 365 + rng.uniform(0, 6, (markets, 1)))
    return (100 + season + np.cumsum(rng.normal(0, 0.6, (markets, days)), axis=1)).astype(np.float32)


def rolling_median(series, span, first, last):
    """Return the median of ``span`` days up to each day of a range."""
    return np.array([np.median(series[day - span + 1 : day + 1]) for day in range(first, last)], np.float32)  # planted


class PriceWindows(Dataset):
    def __init__(self, prices, diary, is_mended):
        self.prices, self.diary = prices, diary
        self.starts = [(m, d) for m in range(len(prices)) for d in range(max(SPANS), prices.shape[1] - PAST - AHEAD)]
        self.medians = None
        if is_mended:
            self.medians = np.zeros((*prices.shape, len(SPANS)), np.float32)
            for place, span in enumerate(SPANS):
                windows = np.lib.stride_tricks.sliding_window_view(prices, span, axis=1)
                self.medians[:, span - 1 :, place] = np.median(windows, axis=-1)

    def __len__(self):
        return len(self.starts)

    def features(self, market, day):
        series = self.prices[market]
        return np.stack([rolling_median(series, span, day, day + PAST) for span in SPANS], axis=1)  # planted

    def __getitem__(self, index):
        market, day = self.starts[index]
        past, ahead = np.split(self.prices[market, day : day + PAST + AHEAD], [PAST])
        if self.medians is not None:
            medians = self.medians[market, day : day + PAST]
        else:
            with self.diary.planted():
                medians = self.features(market, day)  # planted
        level = past[-1]
        return np.concatenate([past[:, None], medians], axis=1) - level, ahead - level


class GatedResidual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.inner, self.outer, self.norm = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x + nn.functional.glu(self.outer(nn.functional.elu(self.inner(x))), dim=-1))


class TFT(L.LightningModule):
    def __init__(self, dim=128):
        super().__init__()
        self.embed = nn.ModuleList([nn.Linear(1, dim) for _ in range(1 + len(SPANS))])
        self.choose = nn.Linear(1 + len(SPANS), 1 + len(SPANS))
        self.past = nn.LSTM(dim, dim, batch_first=True)
        self.gate_1, self.gate_2 = GatedResidual(dim), GatedResidual(dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.asked = nn.Parameter(0.1 * torch.randn(AHEAD, dim))
        self.head = nn.Linear(dim, len(QUANTILES))
        self.register_buffer("quantiles", torch.tensor(QUANTILES))

    def forward(self, x):
        weights = self.choose(x).softmax(-1)
        chosen = torch.stack([embed(x[..., [i]]) for i, embed in enumerate(self.embed)], dim=-2)
        known = self.gate_1(self.past((weights.unsqueeze(-1) * chosen).sum(-2))[0])
        asked = self.asked + known[:, -1:]
        return self.head(self.gate_2(asked + self.attention(asked, known, known, need_weights=False)[0]))

    def training_step(self, batch, batch_index):
        x, y = batch
        error = y.unsqueeze(-1) - self(x)
        return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)


class Steps(L.Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_train_batch_end(self, *args):
        self.diary.stepped()


def main(diary, is_mended):
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    L.seed_everything(53, verbose=False)
    loader = DataLoader(PriceWindows(make_prices(), diary, is_mended), batch_size=16, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Steps(diary)],
    )
    trainer.fit(TFT(), loader)  # planted


if __name__ == "__main__":
    main(*begin())
