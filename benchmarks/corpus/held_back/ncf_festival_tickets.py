"""Neural collaborative filtering of ticket sales; negatives by popularity are drawn a buyer at a time."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BUYERS, EVENTS, SALES = 20_000, 8_000, 1_600_000
FACTORS, BATCH, NEGATIVES = 32, 192, 12


class NeuMF(nn.Module):
    """The two towers of He et al. 2017: a product of factors, and layers over factors side by side."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                "mf_buyer": nn.Embedding(BUYERS, FACTORS, sparse=True),
                "mf_event": nn.Embedding(EVENTS, FACTORS, sparse=True),
                "mlp_buyer": nn.Embedding(BUYERS, FACTORS, sparse=True),
                "mlp_event": nn.Embedding(EVENTS, FACTORS, sparse=True),
            }
        )
        for table in self.tables.values():
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.Sequential(
            nn.Linear(2 * FACTORS, 320), nn.ReLU(), nn.Linear(320, 160), nn.ReLU(), nn.Linear(160, 32), nn.ReLU()
        )
        self.score = nn.Linear(FACTORS + 32, 1)

    def forward(self, buyers, events):
        product = self.tables["mf_buyer"](buyers)[:, None] * self.tables["mf_event"](events)
        left = self.tables["mlp_buyer"](buyers)[:, None].expand(-1, events.shape[1], -1)
        deep = self.layers(torch.cat([left, self.tables["mlp_event"](events)], dim=-1))
        return self.score(torch.cat([product, deep], dim=-1)).squeeze(-1)


class NegativeSampler:
    def __init__(self, events, rng):
        counts = np.bincount(events, minlength=EVENTS) ** 0.75
        self.rng = rng
        self.popularity = counts / counts.sum()
        self.bounds = self.popularity.cumsum()

    def draw(self, buyers):
        rows = []
        for _ in buyers:
            rows.append(self.rng.choice(EVENTS, NEGATIVES, p=self.popularity))  # planted
        return np.stack(rows)

    def draw_together(self, buyers):
        return self.bounds.searchsorted(self.rng.random((len(buyers), NEGATIVES)) * self.bounds[-1])


def sell(rng):
    """Make sales: few events are sold often, and buyers keep to a genre."""
    genre_of_buyer = rng.integers(0, 20, BUYERS)
    buyers = rng.integers(0, BUYERS, SALES)
    within = np.minimum(rng.pareto(1.1, SALES) * 20, EVENTS // 20 - 1).astype(np.int64)
    return buyers, within * 20 + genre_of_buyer[buyers]


def sales_of_an_epoch(buyers, events, rng):
    order = rng.permutation(len(buyers))
    for begin_at in range(0, len(order) - BATCH + 1, BATCH):
        picked = order[begin_at : begin_at + BATCH]
        yield buyers[picked], events[picked]


def main():
    diary, is_mended = begin()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    buyers, events = sell(rng)
    sampler = NegativeSampler(events, rng)
    model = NeuMF()
    sparse = torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3)
    dense = torch.optim.Adam([*model.layers.parameters(), *model.score.parameters()], lr=1e-3)
    labels = torch.zeros(BATCH, 1 + NEGATIVES)
    labels[:, 0] = 1.0
    for epoch in range(1_000_000):
        total = torch.zeros(())
        for step, (who, sold) in enumerate(sales_of_an_epoch(buyers, events, rng)):
            if is_mended:
                unsold = sampler.draw_together(who)
            else:
                with diary.planted():
                    unsold = sampler.draw(who)  # planted
            shown = torch.from_numpy(np.concatenate([sold[:, None], unsold], axis=1))
            logits = model(torch.from_numpy(who), shown)
            loss = F.binary_cross_entropy_with_logits(logits, labels)
            sparse.zero_grad()
            dense.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
            total += loss.detach()
            diary.stepped()
            if step % 500 == 499:
                print(f"epoch {epoch} sales {step * BATCH}: loss {total.item() / 500:.4f}", flush=True)
                total.zero_()


if __name__ == "__main__":
    main()
