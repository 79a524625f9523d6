"""Links of a temporal graph of parcels between depots, by attention over each node's latest events (TGAT).

A batch is a run of consecutive events with as many made-up receivers; a node's history ends where the batch begins.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

DEPOTS, EVENTS, RECENT = 900, 48000, 10


class EventLog:
    """The events in order of time, and the latest events of a node before one of them."""

    def __init__(self, rng):
        popularity = rng.dirichlet(np.full(DEPOTS, 0.6))
        self.senders = rng.choice(DEPOTS, EVENTS, p=popularity)
        self.receivers = (self.senders * 7 + rng.integers(0, 40, EVENTS)) % DEPOTS
        self.times = np.cumsum(rng.exponential(1.0, EVENTS)).astype(np.float32)
        self.features = torch.from_numpy(rng.normal(size=(EVENTS, 16)).astype(np.float32))
        ends = np.concatenate([self.senders, self.receivers])
        order = np.concatenate([np.arange(EVENTS)] * 2)
        keys = ends * (EVENTS + 1) + order
        sort = np.argsort(keys, kind="stable")
        self.keys, self.sorted_ends, self.sorted_events = keys[sort], ends[sort], order[sort]

    def search_recent(self, nodes, before):
        """Return the latest events of each node as rows, the newest first, -1 where there are none."""
        found = np.full((len(nodes), RECENT), -1)
        for row, node in enumerate(nodes):
            touches = (self.senders[:before] == node) | (self.receivers[:before] == node)  # planted
            latest = np.flatnonzero(touches)[-RECENT:][::-1]  # planted
            found[row, : len(latest)] = latest
        return found

    def lookup_recent(self, nodes, before):
        """Return the same from events that are sorted by node and time."""
        ends = np.searchsorted(self.keys, nodes * (EVENTS + 1) + before)
        places = ends[:, None] - 1 - np.arange(RECENT)
        is_own = (places >= 0) & (self.sorted_ends[places] == nodes[:, None])
        return np.where(is_own, self.sorted_events[places], -1)


class TimeEncoding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(1, dim)
        self.linear.weight.data = (1 / 10 ** torch.linspace(0, 5, dim))[:, None]

    def forward(self, spans):
        return self.linear(spans[..., None]).cos()


class TGAT(nn.Module):
    def __init__(self, dim=96, heads=4):
        super().__init__()
        self.nodes, self.clock = nn.Embedding(DEPOTS, dim), TimeEncoding(32)
        self.mix = nn.Linear(dim + 16 + 32, dim)
        self.attend = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.score = nn.Sequential(nn.Linear(2 * dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def embed(self, nodes, partners, features, spans, is_missing):
        own = self.nodes(nodes)
        events = self.mix(torch.cat([self.nodes(partners), features, self.clock(spans)], -1))
        is_missing = torch.cat([torch.zeros(len(nodes), 1, dtype=torch.bool), is_missing], 1)
        events = torch.cat([own[:, None], events], 1)
        seen, _ = self.attend(own[:, None], events, events, key_padding_mask=is_missing, need_weights=False)
        return self.feed(torch.cat([own, seen[:, 0]], -1))

    def forward(self, senders, receivers):
        return self.score(torch.cat([senders, receivers], -1))[:, 0]


def gather(log, nodes, events, now):
    """Return what the model wants to know of the events of nodes."""
    partners = np.where(log.senders[events] == nodes[:, None], log.receivers[events], log.senders[events])
    spans = now - log.times[events]
    return (
        torch.from_numpy(nodes),
        torch.from_numpy(partners),
        log.features[torch.from_numpy(events)],
        torch.from_numpy(spans),
        torch.from_numpy(events < 0),
    )


def main():
    diary, is_mended = begin()
    rng = np.random.default_rng(13)
    log, model, batch = EventLog(rng), TGAT(), 160
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    labels = torch.cat([torch.ones(batch), torch.zeros(batch)])
    step = 0
    while True:
        for start in range(EVENTS // 2, EVENTS - batch, batch):
            others = rng.integers(0, DEPOTS, batch)
            nodes = np.concatenate([log.senders[start : start + batch], log.receivers[start : start + batch], others])
            if is_mended:
                events = log.lookup_recent(nodes, start)
            else:
                with diary.planted():
                    events = log.search_recent(nodes, start)  # planted
            sent, received, wrong = model.embed(*gather(log, nodes, events, log.times[start])).split(batch)
            loss = F.binary_cross_entropy_with_logits(
                model(torch.cat([sent, sent]), torch.cat([received, wrong])), labels
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 300 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
            step += 1
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(13)
    torch.set_num_threads(1)
    main()
