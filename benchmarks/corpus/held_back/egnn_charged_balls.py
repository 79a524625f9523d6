"""An equivariant graph network that tells where charged balls fly, after the n-body experiment. Nothing is planted."""

import copy
import sys
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BALLS, RUNS, HELD_OUT, BATCH, HIDDEN, LAYERS = 6, 3_000, 300, 32, 48, 3


@torch.no_grad()
def simulate(runs, steps=400, dt=2e-3):
    """Let all runs fly at once; return where the balls are at first, how fast, their charges, and where they end."""
    charges = torch.randint(0, 2, (runs, BALLS, 1)).float() * 2 - 1
    begin_at, velocity = torch.randn(runs, BALLS, 3), 0.5 * torch.randn(runs, BALLS, 3)
    places, speeds = begin_at.clone(), velocity.clone()
    product = charges @ charges.mT
    for _ in range(steps):
        apart = places[:, :, None] - places[:, None]
        pull = product / (apart.square().sum(-1) + 0.1) ** 1.5
        speeds += dt * (pull[..., None] * apart).sum(2)
        places += dt * speeds
    return begin_at, velocity, charges, places


def complete_graph(graphs):
    """Edges between all balls of each of the graphs, which a batch of that many always has."""
    ball = torch.arange(BALLS)
    rows, columns = (index.flatten() for index in torch.meshgrid(ball, ball, indexing="ij"))
    differs = rows != columns
    offset = BALLS * torch.arange(graphs)[:, None]
    return (rows[differs] + offset).flatten(), (columns[differs] + offset).flatten()


def mlp(*widths):
    layers = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class EGCL(nn.Module):
    """A layer that moves balls along the lines between them: turn the input, and the output turns with it."""

    def __init__(self):
        super().__init__()
        self.edge_mlp = mlp(2 * HIDDEN + 2, HIDDEN, HIDDEN)
        self.node_mlp = nn.Sequential(mlp(2 * HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN))
        self.coord_mlp = nn.Sequential(mlp(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 1, bias=False))
        self.velocity_mlp = nn.Sequential(mlp(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 1))
        nn.init.xavier_uniform_(self.coord_mlp[-1].weight, gain=0.001)

    def forward(self, h, x, v, edges, edge_attr):
        row, col = edges
        apart = x[row] - x[col]
        squared = apart.square().sum(1, keepdim=True)
        message = self.edge_mlp(torch.cat([h[row], h[col], squared, edge_attr], 1))
        shift = apart / (squared.sqrt() + 1) * self.coord_mlp(message)
        x = x + torch.zeros_like(x).index_add(0, row, shift) / (BALLS - 1) + self.velocity_mlp(h) * v
        gathered = torch.zeros_like(h).index_add(0, row, message)
        return h + self.node_mlp(torch.cat([h, gathered], 1)), x


class EGNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, HIDDEN)
        self.layers = nn.ModuleList(EGCL() for _ in range(LAYERS))

    def forward(self, x, v, charges, edges):
        row, col = edges
        edge_attr = charges[row] * charges[col]
        h = self.embed(torch.cat([v.norm(dim=1, keepdim=True), charges], 1))
        for layer in self.layers:
            h, x = layer(h, x, v, edges, edge_attr)
        return x


def flat(parts):
    return [part.reshape(-1, part.shape[-1]) for part in parts]


class EarlyStopping:
    """Keeps the weights that did best on the runs held out."""

    def __init__(self):
        self.best, self.weights = float("inf"), None

    def __call__(self, model, loss):
        if loss < self.best:
            self.best, self.weights = loss, copy.deepcopy(model.state_dict())
        return self.best


@torch.no_grad()
def evaluate(model, data, edges):
    model.eval()
    losses = []
    for parts in zip(*(part.split(BATCH) for part in data), strict=True):
        if len(parts[0]) == BATCH:
            x, v, charges, after = flat(parts)
            losses.append(F.mse_loss(model(x, v, charges, edges), after))
    model.train()
    return torch.stack(losses).mean().item()


def main():
    diary, _ = begin()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    data = simulate(RUNS + HELD_OUT)
    train, held_out = [part[:RUNS] for part in data], [part[RUNS:] for part in data]
    edges = complete_graph(BATCH)
    model, stopping = EGNN(), EarlyStopping()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-12, foreach=True)
    for epoch in range(1_000_000):
        total = torch.zeros(())
        batches = [picked for picked in torch.randperm(RUNS).split(BATCH) if len(picked) == BATCH]
        for picked in batches:
            x, v, charges, after = flat([part[picked] for part in train])
            optimizer.zero_grad()
            loss = F.mse_loss(model(x, v, charges, edges), after)
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(batches)
            diary.stepped()
        if epoch % 5 == 4:
            best = stopping(model, evaluate(model, held_out, edges))
            print(f"epoch {epoch}: train {total.item():.5f}, best held out {best:.5f}", flush=True)


if __name__ == "__main__":
    main()
