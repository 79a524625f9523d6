"""A graph transformer on molecules: the collator computes the shortest paths of each graph anew in every epoch."""

import argparse
import math
import random
import sys
from pathlib import Path

import networkx as nx
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

MAX_DISTANCE = 20


def random_molecule(rng):
    """Return a tree with some rings, with kinds of atoms and a property that depends on both."""
    size = rng.randint(18, 34)
    graph = nx.Graph()
    graph.add_node(0)
    for node in range(1, size):
        graph.add_edge(node, rng.randint(max(0, node - 4), node - 1))
    for _ in range(size // 7):
        graph.add_edge(*rng.sample(range(size), 2))
    atoms = [rng.randint(1, 9) for _ in range(size)]
    return graph, atoms, math.log(size) + sum(atoms) / 100 + graph.number_of_edges() / 50


class Molecules(Dataset):
    def __init__(self, size, seed, with_distances):
        rng = random.Random(seed)
        self.items = [random_molecule(rng) for _ in range(size)]
        self.distances = [spatial_positions(graph) for graph, _, _ in self.items] if with_distances else None

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return *self.items[index], self.distances[index] if self.distances else None


def spatial_positions(graph):
    positions = torch.full((len(graph), len(graph)), MAX_DISTANCE)
    for source, lengths in nx.all_pairs_shortest_path_length(graph):  # planted
        for target, length in lengths.items():
            positions[source, target] = min(length, MAX_DISTANCE)  # planted
    return positions


class GraphCollator:
    def __init__(self, diary):
        self.diary = diary

    def __call__(self, items):
        longest = max(len(atoms) for _, atoms, _, _ in items)
        nodes = torch.zeros(len(items), longest, dtype=torch.long)
        degrees = torch.zeros(len(items), longest, dtype=torch.long)
        positions = torch.full((len(items), longest, longest), MAX_DISTANCE)
        for row, (graph, atoms, _, distances) in enumerate(items):
            size = len(atoms)
            nodes[row, :size] = torch.tensor(atoms)
            degrees[row, :size] = torch.tensor([min(degree, 9) for _, degree in graph.degree()])
            if distances is None:
                with self.diary.planted():
                    distances = spatial_positions(graph)  # planted
            positions[row, :size, :size] = distances
        return nodes, degrees, positions, torch.tensor([target for _, _, target, _ in items])


class GraphormerLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(b, n, d))
        return x + self.ffn(self.norm2(x))


class Graphormer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.atom, self.degree = nn.Embedding(10, args.dim, padding_idx=0), nn.Embedding(10, args.dim)
        self.spatial = nn.Embedding(MAX_DISTANCE + 1, args.heads)
        self.layers = nn.ModuleList(GraphormerLayer(args.dim, args.heads) for _ in range(args.layers))
        self.readout = nn.Sequential(nn.LayerNorm(args.dim), nn.Linear(args.dim, 1))

    def forward(self, nodes, degrees, positions):
        x = self.atom(nodes) + self.degree(degrees)
        padding = (nodes == 0)[:, None, None, :]
        bias = self.spatial(positions).permute(0, 3, 1, 2).masked_fill(padding, -1e9)
        for layer in self.layers:
            x = layer(x, bias)
        keep = (nodes > 0).unsqueeze(-1)
        return self.readout((x * keep).sum(1) / keep.sum(1)).squeeze(-1)


def main(diary, is_mended):
    args = argparse.Namespace(dim=128, heads=8, layers=6, batch_size=16, lr=2e-4, warmup=500)
    dataset = Molecules(480, seed=7, with_distances=is_mended)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True, collate_fn=GraphCollator(diary))
    model = Graphormer(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / args.warmup))
    for epoch in range(10**6):
        total = torch.zeros(())
        for nodes, degrees, positions, target in loader:  # planted
            loss = F.l1_loss(model(nodes, degrees, positions), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            total += loss.detach()
            diary.stepped()
        print(f"epoch {epoch:03d} | mae {total.item() / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.set_num_threads(1)
    main(*begin())
