"""A message-passing network over molecules, joined to one graph per batch by a worker process of the loader.

Nothing is planted: the graphs are built once, the worker stays, and sums over neighbors are single calls.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ELEMENTS, BONDS = 9, 4


@dataclass
class Molecule:
    elements: torch.Tensor
    edges: torch.Tensor
    bonds: torch.Tensor
    target: torch.Tensor


def made_up(generator):
    """Grow a random tree with a few rings closed; the target depends on elements and bonds."""
    atoms = int(torch.randint(12, 30, (), generator=generator))
    elements = torch.randint(ELEMENTS, (atoms,), generator=generator)
    parents = (torch.rand(atoms - 1, generator=generator) * torch.arange(1, atoms)).long()
    rings = torch.randint(atoms, (2, 3), generator=generator)
    one_way = torch.cat([torch.stack([parents, torch.arange(1, atoms)]), rings], 1)
    bonds = torch.randint(BONDS, (one_way.shape[1],), generator=generator)
    polar = (elements[one_way[0]] - elements[one_way[1]]).abs() * (1 + bonds)
    return Molecule(elements, torch.cat([one_way, one_way.flip(0)], 1), bonds.repeat(2), polar.float().mean())


class Molecules(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.molecules = [made_up(generator) for _ in range(count)]

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, index):
        return self.molecules[index]


def joined(batch):
    sizes = torch.tensor([len(m.elements) for m in batch])
    offsets = (sizes.cumsum(0) - sizes).tolist()
    return {
        "elements": torch.cat([m.elements for m in batch]),
        "edges": torch.cat([m.edges + offset for m, offset in zip(batch, offsets, strict=True)], 1),
        "bonds": torch.cat([m.bonds for m in batch]),
        "graph": torch.repeat_interleave(torch.arange(len(batch)), sizes),
        "target": torch.stack([m.target for m in batch]),
    }


class MessagePassing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(3 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.update = nn.GRUCell(dim, dim)

    def forward(self, x, edges, bonds):
        source, target = edges
        messages = self.message(torch.cat([x[source], x[target], bonds], 1))
        return self.update(torch.zeros_like(x).index_add(0, target, messages), x)


class MPNN(nn.Module):
    def __init__(self, dim=80, rounds=3):
        super().__init__()
        self.elements, self.bonds = nn.Embedding(ELEMENTS, dim), nn.Embedding(BONDS, dim)
        self.rounds = nn.ModuleList(MessagePassing(dim) for _ in range(rounds))
        self.gate, self.value = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, batch):
        start = x = self.elements(batch["elements"])
        bonds = self.bonds(batch["bonds"])
        for layer in self.rounds:
            x = layer(x, batch["edges"], bonds)
        atoms = torch.sigmoid(self.gate(torch.cat([x, start], 1))) * self.value(x)
        graphs = atoms.new_zeros(len(batch["target"]), atoms.shape[1]).index_add(0, batch["graph"], atoms)
        return self.head(graphs).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    errors = [(model(batch) - batch["target"]).abs() for batch in loader]
    model.train()
    return torch.cat(errors).mean().item()


def main(diary):
    torch.manual_seed(0)
    settings = {"batch_size": 64, "collate_fn": joined, "num_workers": 1, "persistent_workers": True}
    train = DataLoader(Molecules(9600, 0), shuffle=True, prefetch_factor=4, **settings)
    held_out = DataLoader(Molecules(480, 1), batch_size=96, collate_fn=joined)
    model = MPNN()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    epoch = 0
    while True:
        for number, batch in enumerate(train):
            loss = F.huber_loss(model(batch), batch["target"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            diary.stepped()
            if number % 50 == 0:
                print(f"epoch {epoch} {number}/{len(train)} loss {loss.item():.4f}", flush=True)
        schedule.step()
        print(f"epoch {epoch} mean absolute error {validate(model, held_out):.4f}", flush=True)
        epoch += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(begin()[0])
