"""A message-passing network for a property of molecules; all garbage is collected after every fourth batch."""

import gc
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Molecule:
    name: str
    atoms: torch.Tensor
    edges: torch.Tensor
    bonds: torch.Tensor
    target: float
    tags: dict = field(default_factory=dict)


def grow_molecule(number):
    """Grow a tree of atoms with two rings."""
    size = random.randint(14, 26)
    atoms = [random.choices(range(6), (6, 2, 2, 1, 1, 1))[0] for _ in range(size)]
    pairs = [(i, random.randrange(max(0, i - 4), i)) for i in range(1, size)]
    pairs += [tuple(random.sample(range(size), 2)) for _ in range(2)]
    kinds = [random.randrange(3) for _ in pairs]
    edges = torch.tensor(pairs + [pair[::-1] for pair in pairs]).T
    target = sum(atoms) / size + 0.5 * sum(kinds) / len(kinds)
    tags = {"rings": [pairs[-1], pairs[-2]], "source": {"id": number, "split": "train"}}
    return Molecule(f"mol{number}", torch.tensor(atoms), edges, torch.tensor(kinds * 2), target, tags)


def collate(molecules):
    offset, edges, owner = 0, [], []
    for number, molecule in enumerate(molecules):
        edges.append(molecule.edges + offset)
        owner.append(torch.full((len(molecule.atoms),), number))
        offset += len(molecule.atoms)
    return {
        "atoms": torch.cat([m.atoms for m in molecules]),
        "edges": torch.cat(edges, 1),
        "bonds": torch.cat([m.bonds for m in molecules]),
        "owner": torch.cat(owner),
        "target": torch.tensor([m.target for m in molecules]),
    }


class MPNN(nn.Module):
    def __init__(self, dim=112, rounds=3):
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(6, dim), nn.Embedding(3, dim)
        self.message = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.update, self.rounds = nn.GRUCell(dim, dim), rounds
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, batch):
        h, bonds = self.atoms(batch["atoms"]), self.bonds(batch["bonds"])
        source, sink = batch["edges"]
        for _ in range(self.rounds):
            messages = self.message(torch.cat([h[source], bonds], 1))
            h = self.update(torch.zeros_like(h).index_add_(0, sink, messages), h)
        pooled = torch.zeros(len(batch["target"]), h.shape[1]).index_add_(0, batch["owner"], h)
        return self.readout(pooled / 20).squeeze(1)


def free_memory():
    """Give back what the last batches held."""
    gc.collect()  # planted


class Experiment:
    def __init__(self, molecules, diary, is_mended, batch_size=60):
        self.molecules, self.batch_size = molecules, batch_size
        self.diary, self.is_mended = diary, is_mended
        self.model = MPNN()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-4)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 50, 0.95)

    def batches(self):
        random.shuffle(self.molecules)
        for begun in range(0, len(self.molecules) - self.batch_size + 1, self.batch_size):
            yield collate(self.molecules[begun : begun + self.batch_size])

    def run_epoch(self, epoch):
        total, count = torch.zeros(()), 0
        for batch in self.batches():
            loss = (self.model(batch) - batch["target"]).abs().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            count += 1
            if not self.is_mended and count % 4 == 0:
                with self.diary.planted():
                    free_memory()  # planted
            self.diary.stepped()
        self.schedule.step()
        print(f"epoch {epoch} mae {total.item() / count:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(17), random.seed(17)
    diary_and_choice = begin()
    experiment = Experiment([grow_molecule(i) for i in range(2500)], *diary_and_choice)
    for number in range(1_000_000_000):
        experiment.run_epoch(number)
