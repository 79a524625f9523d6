"""A graph transformer after GraphGPS that predicts the solubility of dyestuffs.

Nodes know their place by eigenvectors of the Laplacian. They are computed by a transform of the loader, again whenever
a graph comes into a batch.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ATOMS, NODES, EIGENVECTORS = 12, 48, 8


@dataclass
class Dyestuff:
    atoms: np.ndarray
    adjacency: np.ndarray
    solubility: float
    places: np.ndarray | None = None


def make_dyestuff(rng):
    size = int(rng.integers(28, NODES + 1))
    adjacency = np.zeros((size, size), np.float32)
    for node in range(1, size):
        parent = rng.integers(max(0, node - 4), node)
        adjacency[node, parent] = adjacency[parent, node] = 1
    for first, second in rng.integers(0, size, (size // 6, 2)):
        if first != second:
            adjacency[first, second] = adjacency[second, first] = 1
    atoms = rng.integers(1, ATOMS, size)
    solubility = float(np.mean(atoms == 3) * 4 - np.mean(adjacency.sum(1) > 2) + 0.05 * rng.normal())
    return Dyestuff(atoms, adjacency, solubility)


def laplacian_places(adjacency):
    """Return the first eigenvectors of the normalized Laplacian that are not trivial, with signs by chance."""
    degree = adjacency.sum(1)
    scale = 1 / np.sqrt(np.maximum(degree, 1))
    laplacian = np.eye(len(adjacency)) - scale[:, None] * adjacency * scale[None, :]
    _, vectors = np.linalg.eigh(laplacian)  # planted
    return vectors[:, 1 : 1 + EIGENVECTORS].astype(np.float32)


class Dyestuffs(Dataset):
    def __init__(self, count, diary, is_mended):
        rng = np.random.default_rng(23)
        self.graphs = [make_dyestuff(rng) for _ in range(count)]
        self.diary = diary
        if is_mended:
            for graph in self.graphs:
                graph.places = laplacian_places(graph.adjacency)

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        graph = self.graphs[index]
        if graph.places is not None:
            return graph, graph.places
        with self.diary.planted():
            return graph, laplacian_places(graph.adjacency)  # planted


def collate(items):
    atoms = np.zeros((len(items), NODES), np.int64)
    adjacency = np.zeros((len(items), NODES, NODES), np.float32)
    places = np.zeros((len(items), NODES, EIGENVECTORS), np.float32)
    for row, (graph, vectors) in enumerate(items):
        size = len(graph.atoms)
        atoms[row, :size] = graph.atoms
        adjacency[row, :size, :size] = graph.adjacency
        places[row, :size] = vectors
    solubility = torch.tensor([graph.solubility for graph, _ in items])
    return torch.from_numpy(atoms), torch.from_numpy(adjacency), torch.from_numpy(places), solubility


class GPSLayer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, adjacency, is_padding):
        near = self.local(x + adjacency @ x)
        far = self.attention(x, x, x, key_padding_mask=is_padding, need_weights=False)[0]
        x = self.norm_1(x + near + far)
        return self.norm_2(x + self.mlp(x))


class GPS(nn.Module):
    def __init__(self, dim=48, depth=2):
        super().__init__()
        self.atoms = nn.Embedding(ATOMS, dim, padding_idx=0)
        self.places = nn.Linear(EIGENVECTORS, dim)
        self.layers = nn.ModuleList([GPSLayer(dim) for _ in range(depth)])
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, atoms, adjacency, places):
        is_padding = atoms == 0
        signs = torch.randint(0, 2, (len(atoms), 1, EIGENVECTORS)) * 2 - 1
        x = self.atoms(atoms) + self.places(places * signs)
        for layer in self.layers:
            x = layer(x, adjacency, is_padding)
        x = x.masked_fill(is_padding.unsqueeze(-1), 0).sum(1) / (~is_padding).sum(1, keepdim=True)
        return self.head(x).squeeze(1)


def main(diary, is_mended):
    torch.manual_seed(23)
    torch.set_num_threads(1)
    loader = DataLoader(Dyestuffs(1_500, diary, is_mended), 24, shuffle=True, drop_last=True, collate_fn=collate)
    model = GPS()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    epoch = 0
    while True:
        for atoms, adjacency, places, solubility in loader:  # planted
            loss = F.l1_loss(model(atoms, adjacency, places), solubility)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        epoch += 1
        print(f"epoch {epoch} mae {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main(*begin())
