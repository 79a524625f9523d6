"""Yields of reactions from two molecules each, by a graph isomorphism network over disjoint unions of graphs.

Nothing is planted: graphs are joined by shifted indices, and messages are summed in one call.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Molecule(NamedTuple):
    atoms: Tensor  # kinds of the n atoms
    bonds: Tensor  # 2 x m
    kinds: Tensor  # kinds of the m bonds


class Union(NamedTuple):
    atoms: Tensor
    bonds: Tensor
    kinds: Tensor
    owner: Tensor
    count: int


def grow_molecule(generator):
    n = int(torch.randint(14, 34, (), generator=generator))
    child = torch.arange(1, n)
    parent = (child - torch.randint(1, 4, (n - 1,), generator=generator)).clamp_min(0)
    pairs = torch.stack([torch.cat([child, parent]), torch.cat([parent, child])])
    kinds = torch.randint(0, 4, (n - 1,), generator=generator).repeat(2)
    return Molecule(torch.randint(0, 12, (n,), generator=generator), pairs, kinds)


def unite(molecules):
    sizes = torch.tensor([len(m.atoms) for m in molecules])
    starts = (sizes.cumsum(0) - sizes).tolist()
    return Union(
        torch.cat([m.atoms for m in molecules]),
        torch.cat([m.bonds + start for m, start in zip(molecules, starts, strict=True)], 1),
        torch.cat([m.kinds for m in molecules]),
        torch.arange(len(molecules)).repeat_interleave(sizes),
        len(molecules),
    )


class GINLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bond, self.eps = nn.Embedding(4, width), nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )

    def forward(self, h, g):
        messages = torch.relu(h.index_select(0, g.bonds[0]) + self.bond(g.kinds))
        summed = torch.zeros_like(h).index_add(0, g.bonds[1], messages)
        return h + self.mlp((1 + self.eps) * h + summed)


class YieldNet(nn.Module):
    def __init__(self, width=128, depth=4):
        super().__init__()
        self.atom = nn.Embedding(12, width)
        self.layers = nn.ModuleList(GINLayer(width) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 1), nn.Sigmoid())

    def encode(self, g):
        h = self.atom(g.atoms)
        for layer in self.layers:
            h = layer(h, g)
        return h.new_zeros(g.count, h.shape[1]).index_add(0, g.owner, h) / 20

    def forward(self, left, right):
        return self.head(torch.cat([self.encode(left), self.encode(right)], 1))[:, 0]


class Reactions:
    def __init__(self, count, generator):
        self.molecules = [grow_molecule(generator) for _ in range(300)]
        self.pairs = torch.randint(0, 300, (count, 2), generator=generator)
        carbon = torch.tensor([(m.atoms < 4).float().mean() for m in self.molecules])
        self.yields = (carbon[self.pairs[:, 0]] + 1 - carbon[self.pairs[:, 1]]) / 2

    def batches(self, size, shuffled=True):
        rows = torch.randperm(len(self.pairs)) if shuffled else torch.arange(len(self.pairs))
        for part in rows.split(size):
            left, right = self.pairs[part].T.tolist()
            sides = ([self.molecules[i] for i in side] for side in (left, right))
            yield *map(unite, sides), self.yields[part]


def validate(model, reactions):
    model.eval()
    with torch.inference_mode():
        wrong = [(model(a, b) - y).abs().mean() for a, b, y in reactions.batches(64, shuffled=False)]
    model.train()
    return torch.stack(wrong).mean().item()


def main():
    diary, _ = begin()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    generator = torch.Generator().manual_seed(17)
    train, valid = Reactions(2400, generator), Reactions(256, generator)
    model = YieldNet()
    optimizer = torch.optim.Adam(model.parameters(), 8e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=4, min_lr=1e-5)
    epoch = 0
    while True:
        total = torch.zeros(())
        for left, right, target in train.batches(32):
            loss = nn.functional.smooth_l1_loss(model(left, right), target, beta=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            diary.stepped()
        error = validate(model, valid)
        plateau.step(error)
        epoch += 1
        print(f"epoch {epoch}: loss {total.item() / 75:.4f} mae {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
