"""Offline evaluation of a sequential recommender, day by day: each user's items are sorted as a Python list."""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ITEMS, LENGTH, USERS, CUTOFFS = 2000, 50, 3200, (5, 10, 20)


class SASRec(nn.Module):
    def __init__(self, dim=128, heads=2, depth=3):
        super().__init__()
        self.items, self.places = nn.Embedding(ITEMS, dim), nn.Parameter(0.02 * torch.randn(LENGTH, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 3 * dim, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, history):
        hidden = self.encoder(self.items(history) + self.places, mask=self.causal, is_causal=True)
        return hidden[:, -1] @ self.items.weight.T


@dataclass
class Report:
    users: int = 0
    gain: dict = field(default_factory=lambda: dict.fromkeys(CUTOFFS, 0.0))
    hits: dict = field(default_factory=lambda: dict.fromkeys(CUTOFFS, 0))

    def add(self, ranks):
        self.users += len(ranks)
        for cutoff in CUTOFFS:
            inside = [rank for rank in ranks if rank < cutoff]
            self.hits[cutoff] += len(inside)
            self.gain[cutoff] += sum(1 / math.log2(rank + 2) for rank in inside)

    def __str__(self):
        parts = (f"HR@{c} {self.hits[c] / self.users:.4f} NDCG@{c} {self.gain[c] / self.users:.4f}" for c in CUTOFFS)
        return " | ".join(parts)


class Evaluator:
    def __init__(self, model, diary, is_mended):
        self.model, self.diary, self.is_mended = model.eval(), diary, is_mended

    def rank(self, scores, target):
        """Return the place of the wanted item among all."""
        row = scores.tolist()
        order = sorted(range(len(row)), key=row.__getitem__, reverse=True)  # planted
        return order.index(target)

    def ranks(self, scores, targets):
        if self.is_mended:
            wanted = scores.gather(1, targets[:, None])
            return (scores > wanted).sum(1).tolist()
        with self.diary.planted():
            return [self.rank(row, target) for row, target in zip(scores, targets.tolist(), strict=True)]  # planted

    @torch.inference_mode()
    def run(self, loader, report, log_every=20):
        for number, (history, targets) in enumerate(loader):
            scores = self.model(history)
            scores.scatter_(1, history, -torch.inf)  # what was bought already is not recommended
            loss = F.cross_entropy(scores, targets)
            report.add(self.ranks(scores, targets))  # planted
            self.diary.stepped()
            if number % log_every == 0:
                print(f"batch {number} loss {loss.item():.4f} {report}", flush=True)
        return report


def purchases(day):
    """Histories of a day that walk through neighboring items, and the item that came next."""
    generator = torch.Generator().manual_seed(day)
    starts = torch.randint(ITEMS, (USERS, 1), generator=generator)
    steps = torch.randint(1, 40, (USERS, LENGTH), generator=generator)
    path = torch.cat([starts, starts + steps.cumsum(1)], 1) % ITEMS
    history, target = path[:, :-1], path[:, -1]
    repeated = (history == target[:, None]).any(1)
    return TensorDataset(history[~repeated], target[~repeated])


def main(diary, is_mended):
    torch.manual_seed(11)
    evaluator = Evaluator(SASRec(), diary, is_mended)
    day = 0
    while True:
        loader = DataLoader(purchases(day), batch_size=32)
        report = evaluator.run(loader, Report())  # planted
        print(f"day {day}: {report}", flush=True)
        day += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*begin())
