"""Leaks in networks of water pipes, node by node, with principal neighbourhood aggregation over batches of graphs.

Nothing is planted: graphs have the same number of nodes, are stored as tensors and joined by offsets.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

GRAPHS, NODES, PIPES, BATCH = 600, 60, 150, 12


def make_networks():
    """Return features of nodes, ends of pipes and features of pipes; pressure falls around a leak."""
    ends = torch.randint(NODES, (GRAPHS, 2, PIPES))
    ends[:, 0, :NODES], ends[:, 1, :NODES] = torch.arange(NODES), (torch.arange(NODES) + 1) % NODES
    ends = torch.cat([ends, ends.flip(1)], 2)  # water flows both ways
    pipes = torch.rand(GRAPHS, PIPES, 3).repeat(1, 2, 1)
    leaks = torch.zeros(GRAPHS, NODES)
    leaks.scatter_(1, torch.randint(NODES, (GRAPHS, 4)), 1.0)
    pressure = 1 - leaks
    for _ in range(2):
        pressure = 0.5 * pressure + 0.5 * pressure.scatter_reduce(1, ends[:, 1], pressure.gather(1, ends[:, 0]), "mean")
    nodes = torch.stack([pressure + 0.1 * torch.randn_like(pressure), torch.rand(GRAPHS, NODES)], 2)
    return nodes, ends, pipes, leaks


class Networks:
    def __init__(self, batch):
        self.nodes, self.ends, self.pipes, self.leaks = make_networks()
        self.offsets = (torch.arange(batch) * NODES)[:, None, None]
        self.batch = batch

    def __iter__(self):
        for rows in torch.randperm(GRAPHS).split(self.batch):
            ends = (self.ends[rows] + self.offsets[: len(rows)]).transpose(0, 1).reshape(2, -1)
            yield self.nodes[rows].flatten(0, 1), ends, self.pipes[rows].flatten(0, 1), self.leaks[rows].flatten()


class PNALayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(3 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.update = nn.Sequential(nn.Linear(10 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.norm = nn.BatchNorm1d(dim)

    def forward(self, h, ends, pipes, amplify):
        sources, targets = ends
        messages = self.message(torch.cat([h[sources], h[targets], pipes], 1))
        place = targets[:, None].expand_as(messages)
        zeros = torch.zeros_like(h)
        mean = zeros.scatter_reduce(0, place, messages, "mean", include_self=False)
        square = zeros.scatter_reduce(0, place, messages.square(), "mean", include_self=False)
        most = zeros.scatter_reduce(0, place, messages, "amax", include_self=False)
        spread = (square - mean.square()).clamp(min=0).add(1e-5).sqrt()
        seen = torch.cat([mean, most, spread], 1)
        seen = torch.cat([seen, seen * amplify, seen / amplify], 1)
        return h + F.relu(self.norm(self.update(torch.cat([h, seen], 1))))


class PNA(nn.Module):
    def __init__(self, dim=48, layers=3, mean_degree=5.0):
        super().__init__()
        self.nodes, self.pipes = nn.Linear(2, dim), nn.Linear(3, dim)
        self.layers = nn.ModuleList(PNALayer(dim) for _ in range(layers))
        self.head = nn.Linear(dim, 1)
        self.scale = torch.tensor(mean_degree + 1).log()

    def forward(self, nodes, ends, pipes):
        degrees = torch.bincount(ends[1], minlength=len(nodes))
        amplify = ((degrees + 1).log() / self.scale).clamp(min=0.1)[:, None]
        h, pipes = self.nodes(nodes), self.pipes(pipes)
        for layer in self.layers:
            h = layer(h, ends, pipes, amplify)
        return self.head(h)[:, 0]


def evaluate(model, graphs):
    model.eval()
    with torch.no_grad():
        logits = model(*graphs[:3])
    model.train()
    return ((logits > 0) == graphs[3].bool()).float().mean().item()


def main():
    diary, _ = begin()
    networks = Networks(BATCH)
    held_out = next(iter(networks))
    model = PNA()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    weight, epoch = torch.tensor(10.0), 0
    while True:
        total = torch.zeros(())
        for nodes, ends, pipes, leaks in networks:
            loss = F.binary_cross_entropy_with_logits(model(nodes, ends, pipes), leaks, pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            diary.stepped()
        epoch += 1
        if epoch % 10 == 0:
            right = evaluate(model, held_out)
            print(f"epoch {epoch}: loss {total.item() * BATCH / GRAPHS:.4f}, right {right:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(19)
    torch.set_num_threads(1)
    main()
