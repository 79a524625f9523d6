"""Active learning with an ensemble and an oracle that is asked for one label at a time, within a limit of requests."""

import os
import sys
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N_IN, N_CLASSES, MEMBERS, QUERY = 128, 8, 3, 8


class RateLimiter:
    """Not more requests a second than the service allows."""

    def __init__(self, per_second):
        self.interval, self.next_at = 1.0 / per_second, 0.0

    def wait(self):
        left = self.next_at - time.monotonic()
        if left > 0:
            time.sleep(left)  # planted
        self.next_at = time.monotonic() + self.interval


class Oracle:
    """A client of the labelling service; one request may hold up to 64 rows."""

    def __init__(self, teacher, per_second=320):
        self.teacher, self.limiter, self.requests = teacher, RateLimiter(per_second), 0

    @torch.no_grad()
    def request(self, rows):
        self.limiter.wait()  # planted
        self.requests += 1
        return self.teacher(rows).argmax(1)


def ask_one_by_one(oracle, rows):
    return torch.cat([oracle.request(row[None]) for row in rows])  # planted


def ask_at_once(oracle, rows):
    return oracle.request(rows)


class Ensemble(nn.Module):
    def __init__(self, hidden=320):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(
                nn.Linear(N_IN, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, N_CLASSES)
            )
            for _ in range(MEMBERS)
        )

    def forward(self, x):
        return torch.stack([member(x) for member in self.members])


class Labelled:
    """The latest rows with labels, in a ring."""

    def __init__(self, size):
        self.x, self.y, self.added = torch.zeros(size, N_IN), torch.zeros(size, dtype=torch.long), 0

    def extend(self, x, y):
        places = (self.added + torch.arange(len(x))) % len(self.x)
        self.x[places], self.y[places] = x, y
        self.added += len(x)

    def sample(self, count):
        rows = torch.randint(min(self.added, len(self.x)), (count,))
        return self.x[rows], self.y[rows]


@torch.inference_mode()
def most_disputed(ensemble, pool, count):
    """Rows of a pool of which the members' opinions differ most (BALD)."""
    probs = ensemble(pool).softmax(-1)
    mean = probs.mean(0)
    bald = torch.special.entr(mean).sum(1) - torch.special.entr(probs).sum(2).mean(0)
    return bald.topk(count).indices


def main(diary, is_mended):
    ask = ask_at_once if is_mended else ask_one_by_one
    torch.set_num_threads(1)
    torch.manual_seed(9)
    teacher = nn.Sequential(nn.Linear(N_IN, 32), nn.Tanh(), nn.Linear(32, N_CLASSES)).requires_grad_(False)
    oracle, ensemble, labelled = Oracle(teacher), Ensemble(), Labelled(20_000)
    optimizer = torch.optim.AdamW(ensemble.parameters(), lr=1e-3)
    first = torch.randn(64, N_IN)
    labelled.extend(first, oracle.request(first))
    for round_number in range(1_000_000_000):
        pool = torch.randn(256, N_IN)
        rows = pool[most_disputed(ensemble, pool, QUERY)]
        with diary.planted():
            labels = ask(oracle, rows)  # planted
        labelled.extend(rows, labels)
        for _ in range(2):
            x, y = labelled.sample(320)
            opinions = ensemble(x)
            loss = F.cross_entropy(opinions.flatten(0, 1), y.repeat(MEMBERS))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        diary.stepped()
        if round_number % 50 == 0:
            print(f"round {round_number} labels {labelled.added} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main(*begin())
