"""A graph isomorphism network on many small molecules, each of which is a file that is loaded whenever a batch needs it.

Complaint: pyg-team/pytorch_geometric, issue 1294, "Data Load Speed Huge Drop from InMemoryDataset to Dataset": after the change to a ``Dataset`` whose
``get`` loads one file for each graph, the training speed drops hugely. The maintainers: ``Dataset`` loads the graphs from the storage each time, and
who has the memory should stick with ``InMemoryDataset``, which the user did. No figure is named but "like 1k times" for the loading.

At SIGTERM the program removes its temporary folder with the files.
"""

import itertools
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Data:
    x: torch.Tensor
    edge_index: torch.Tensor
    y: float


def make_molecule(generator, kinds=9):
    count = int(torch.randint(12, 40, (1,), generator=generator))
    x = nn.functional.one_hot(torch.randint(kinds, (count,), generator=generator), kinds).float()
    parents = torch.stack([torch.randint(node, (1,), generator=generator)[0] for node in range(1, count)])
    children = torch.arange(1, count)
    edges = torch.stack([torch.cat([parents, children]), torch.cat([children, parents])])
    return {"x": x, "edge_index": edges, "y": float(x[:, 0].sum() - x[:, 1].sum())}


class Molecules(Dataset):
    """One file for each graph, as of PyG's ``Dataset`` with ``processed_file_names``."""

    def __init__(self, folder, count, diary):
        self.folder, self.count, self.diary = folder, count, diary
        generator = torch.Generator().manual_seed(4)
        for number in range(count):
            torch.save(make_molecule(generator), folder / f"data_{number}.pt")

    def __len__(self):
        return self.count

    def get(self, index):
        return Data(**torch.load(self.folder / f"data_{index}.pt"))  # planted

    def __getitem__(self, index):
        with self.diary.planted():
            return self.get(index)  # planted


class InMemoryMolecules(Molecules):
    def __init__(self, folder, count, diary):
        super().__init__(folder, count, diary)
        self.graphs = [super(InMemoryMolecules, self).get(number) for number in range(count)]

    def get(self, index):
        return self.graphs[index]


class Batch:
    """Graphs joined to one graph with parts that do not touch."""

    def __init__(self, graphs):
        counts = torch.tensor([len(graph.x) for graph in graphs])
        firsts = counts.cumsum(0) - counts
        self.x = torch.cat([graph.x for graph in graphs])
        self.edges = torch.cat([graph.edge_index + first for graph, first in zip(graphs, firsts, strict=True)], 1)
        self.graph_of = torch.repeat_interleave(torch.arange(len(graphs)), counts)
        self.y = torch.tensor([graph.y for graph in graphs])


class GIN(nn.Module):
    def __init__(self, width=9, hidden=128, layers=4):
        super().__init__()
        widths = [width] + [hidden] * layers
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(a, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, b), nn.ReLU())
            for a, b in itertools.pairwise(widths)
        )
        self.head = nn.Linear(hidden, 1)

    def forward(self, batch):
        hidden = batch.x
        for layer in self.layers:
            gathered = torch.zeros_like(hidden).index_add(0, batch.edges[1], hidden[batch.edges[0]])
            hidden = layer(hidden + gathered)
        pooled = torch.zeros(len(batch.y), hidden.shape[1]).index_add(0, batch.graph_of, hidden)
        return self.head(pooled)[:, 0]


def main():
    diary, is_mended = begin()
    folder = Path(tempfile.mkdtemp(prefix="molecules-"))
    signal.signal(signal.SIGTERM, lambda *_: (shutil.rmtree(folder, ignore_errors=True), os._exit(0)))
    dataset = (InMemoryMolecules if is_mended else Molecules)(folder, 2000, diary)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=Batch)
    model = GIN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10**6):
        error = torch.zeros(())
        for batch in loader:  # planted
            loss = nn.functional.mse_loss(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            error += loss.detach()
            diary.stepped()
        print(f"epoch {epoch}: {float(error) / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(4)
    torch.set_num_threads(1)
    main()
