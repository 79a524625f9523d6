"""Attention over the fields of a table (AutoInt) for crop insurance; the AUC of recent rows follows each step."""

import sys
from collections import deque
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FIELDS = [40, 12, 300, 7, 90, 25, 4, 60]


class AutoInt(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, *FIELDS[:-1]]).cumsum(0))
        self.embedding = nn.Embedding(sum(FIELDS), width)
        self.attention = nn.ModuleList(nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.head = nn.Linear(width * len(FIELDS), 1)

    def forward(self, rows):
        x = self.embedding(rows + self.offsets)
        for attention, norm in zip(self.attention, self.norms, strict=True):
            x = norm(x + attention(x, x, x, need_weights=False)[0])
        return self.head(x.flatten(1)).squeeze(1)


class RecentRows:
    """The scores of the last rows, and how well they are ranked."""

    def __init__(self, number=16_384):
        self.scores = deque(maxlen=number)
        self.labels = deque(maxlen=number)

    def add(self, scores, labels):
        self.scores.extend(scores.tolist())
        self.labels.extend(labels.tolist())

    def auc(self):
        labels = torch.tensor(self.labels)[torch.tensor(self.scores).argsort()]  # planted
        ranks = torch.arange(1, len(labels) + 1, dtype=torch.float64)
        wins = labels.sum().double()
        return ((ranks[labels > 0].sum() - wins * (wins + 1) / 2) / (wins * (len(labels) - wins)).clamp_min(1)).item()


def main():
    diary, is_mended = begin()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    rows = torch.stack([torch.randint(size, (32_768,)) for size in FIELDS], 1)
    hidden = (rows[:, 0] % 3 + rows[:, 2] % 5 - rows[:, 4] % 4).float()
    labels = torch.bernoulli(torch.sigmoid(hidden - hidden.mean()))
    model = AutoInt()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    recent = RecentRows()
    for epoch in range(1_000_000):
        auc = 0.5
        for chosen in torch.randperm(len(rows)).split(256):
            logits = model(rows[chosen])
            loss = F.binary_cross_entropy_with_logits(logits, labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            recent.add(logits.detach(), labels[chosen])
            if not is_mended:
                with diary.planted():
                    auc = recent.auc()  # planted
            diary.stepped()
        if is_mended:
            auc = recent.auc()
        print(f"epoch {epoch} loss {loss.item():.4f} AUC {auc:.4f}", flush=True)


if __name__ == "__main__":
    main()
