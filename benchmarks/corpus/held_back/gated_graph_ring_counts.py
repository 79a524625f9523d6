"""Gated graph network that counts rings in made-up molecules, batches joined to one graph. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ATOMS, KINDS, DIM = 24, 8, 96


def make_molecules(count=2000):
    """Chains of a fixed length of atoms with bonds that close rings; every molecule has the same number of bonds."""
    generator = torch.Generator().manual_seed(9)
    atoms = torch.randint(KINDS, (count, ATOMS), generator=generator)
    chain = torch.stack([torch.arange(ATOMS - 1), torch.arange(1, ATOMS)]).expand(count, 2, ATOMS - 1)
    start = torch.randint(ATOMS - 6, (count, 1, 5), generator=generator)
    span = torch.randint(2, 6, (count, 1, 5), generator=generator)
    bonds = torch.cat([chain, torch.cat([start, start + span], 1)], 2)
    bonds = torch.cat([bonds, bonds.flip(1)], 2)
    target = torch.stack([(span == 4).sum((1, 2)), (span == 5).sum((1, 2))], 1).float()
    return atoms, bonds, target


class GatedGraph(nn.Module):
    def __init__(self, rounds=4):
        super().__init__()
        self.embed = nn.Embedding(KINDS, DIM)
        self.message = nn.Linear(DIM, DIM)
        self.cell = nn.GRUCell(DIM, DIM)
        self.gate = nn.Linear(2 * DIM, DIM)
        self.value = nn.Linear(DIM, DIM)
        self.out = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 2))
        self.rounds = rounds

    def forward(self, atoms, bonds):
        batch = len(atoms)
        first = self.embed(atoms).view(-1, DIM)
        source, target = (bonds + (torch.arange(batch) * ATOMS).view(-1, 1, 1)).transpose(0, 1).reshape(2, -1)
        h = first
        for _ in range(self.rounds):
            inbox = torch.zeros_like(h).index_add(0, target, self.message(h)[source])
            h = self.cell(inbox, h)
        weight = torch.sigmoid(self.gate(torch.cat([h, first], 1)))
        pooled = (weight * torch.tanh(self.value(h))).view(batch, ATOMS, DIM).sum(1)
        return self.out(pooled)


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    atoms, bonds, target = make_molecules()
    model = GatedGraph()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.7)
    for epoch in range(1_000_000):
        total = torch.zeros(())
        for chosen in torch.randperm(len(atoms)).split(50):
            loss = F.mse_loss(model(atoms[chosen], bonds[chosen]), target[chosen])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.detach()
            diary.stepped()
        scheduler.step()
        print(f"epoch {epoch} mse {total.item() * 50 / len(atoms):.4f}", flush=True)


if __name__ == "__main__":
    main()
