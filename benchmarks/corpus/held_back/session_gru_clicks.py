"""Next-click recommendation with a GRU over a shop's sessions: the collate function parses each click's time anew."""

import csv
import io
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N_ITEMS, N_SESSIONS, MAX_CLICKS, STAMP = 800, 4000, 20, "%Y-%m-%dT%H:%M:%S.%fZ"


def exported_clicks():
    """Write the export: session, item and time of each click, as text."""
    rng, out = random.Random(4), io.StringIO()
    writer = csv.writer(out)
    for session in range(N_SESSIONS):
        when, item = datetime(2024, 3, 1) + timedelta(minutes=11 * session), rng.randrange(N_ITEMS)
        for _ in range(rng.randint(14, MAX_CLICKS + 1)):
            writer.writerow((session, item, when.strftime(STAMP)))
            item = (item * 7 + rng.randrange(5)) % N_ITEMS
            when += timedelta(seconds=rng.expovariate(1 / 40))
    out.seek(0)
    return out


class ClickSessions(Dataset):
    """Rows of the export by session; keeps seconds for each click if `as_seconds`, its text otherwise."""

    def __init__(self, file, as_seconds):
        self.sessions = [[] for _ in range(N_SESSIONS)]
        for session, item, stamp in csv.reader(file):
            when = datetime.strptime(stamp, STAMP).timestamp() if as_seconds else stamp
            self.sessions[int(session)].append((int(item), when))

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, index):
        return self.sessions[index]


class SessionCollate:
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended

    def seconds(self, batch):
        if self.is_mended:
            return [[when for _, when in session] for session in batch]
        with self.diary.planted():
            return [[datetime.strptime(when, STAMP).timestamp() for _, when in session] for session in batch]  # planted

    def __call__(self, batch):
        times = self.seconds(batch)
        items = torch.zeros(len(batch), MAX_CLICKS + 1, dtype=torch.long)
        gaps = torch.zeros(len(batch), MAX_CLICKS)
        for row, (session, when) in enumerate(zip(batch, times, strict=True)):
            items[row, : len(session)] = torch.tensor([item + 1 for item, _ in session])
            gaps[row, : len(when) - 1] = torch.tensor(when, dtype=torch.float64).diff().float()
        return items[:, :-1], gaps.clamp(min=0).log1p(), items[:, 1:]


class GRU4Rec(nn.Module):
    def __init__(self, dim=96, hidden=128, gap_bins=24):
        super().__init__()
        self.item = nn.Embedding(N_ITEMS + 1, dim, padding_idx=0)
        self.gap = nn.Embedding(gap_bins, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(hidden, N_ITEMS + 1))

    def forward(self, items, gaps):
        bins = (gaps * 3).long().clamp(max=self.gap.num_embeddings - 1)
        hidden, _ = self.gru(self.item(items) + self.gap(bins))
        return self.head(hidden)


def train(diary, is_mended):
    sessions = ClickSessions(exported_clicks(), as_seconds=is_mended)
    collate = SessionCollate(diary, is_mended)
    loader = DataLoader(sessions, 64, shuffle=True, collate_fn=collate, drop_last=True)
    model = GRU4Rec()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.03)
    epoch, step = 0, 0
    while True:
        for items, gaps, targets in loader:  # planted
            logits = model(items, gaps)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            diary.stepped()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        epoch += 1


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(*begin())
