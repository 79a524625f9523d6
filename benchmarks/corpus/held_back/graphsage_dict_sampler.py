"""GraphSAGE with sampled neighbors: the sampler walks over lists of a dictionary, node by node."""

import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NODES, FEATURES, CLASSES = 20_000, 64, 12
FANOUTS, BATCH = (10, 5), 128


class Graph:
    """Communities that mostly know their own members; a node's class is its community."""

    def __init__(self, rng, degree=14):
        self.labels = rng.integers(CLASSES, size=NODES)
        members = [np.flatnonzero(self.labels == one) for one in range(CLASSES)]
        rows, columns = [], []
        for node in range(NODES):
            own = rng.choice(members[self.labels[node]], size=degree - 4)
            rows.append(np.full(degree, node))
            columns.append(np.concatenate([own, rng.integers(NODES, size=4)]))
        sources, targets = np.concatenate(rows), np.concatenate(columns)
        both = np.concatenate([np.stack([sources, targets]), np.stack([targets, sources])], 1)
        both = both[:, np.argsort(both[0], kind="stable")]
        self.indices = both[1]
        self.indptr = np.searchsorted(both[0], np.arange(NODES + 1))
        centers = rng.normal(size=(CLASSES, FEATURES))
        self.features = torch.tensor(centers[self.labels] + 3.0 * rng.normal(size=(NODES, FEATURES))).float()
        self.targets = torch.from_numpy(self.labels)

    def adjacency_lists(self):
        ends = self.indptr.tolist()
        return {node: self.indices[ends[node] : ends[node + 1]].tolist() for node in range(NODES)}


class ListSampler:
    def __init__(self, graph, diary):
        self.neighbors, self.diary = graph.adjacency_lists(), diary

    def layer(self, nodes, fanout):
        ids = {node: place for place, node in enumerate(nodes)}
        edges = []
        for node in nodes:
            known = self.neighbors[node]
            picked = random.sample(known, fanout) if len(known) > fanout else known  # planted
            for other in picked:  # planted
                if other not in ids:  # planted
                    ids[other] = len(ids)
                edges.append((ids[other], ids[node]))  # planted
        return list(ids), torch.tensor(edges).t()  # planted

    def sample(self, seeds):
        with self.diary.planted():
            nodes, blocks = seeds.tolist(), []
            for fanout in FANOUTS:
                count = len(nodes)
                nodes, edges = self.layer(nodes, fanout)  # planted
                blocks.append((edges, count))
        return torch.tensor(nodes), blocks[::-1]


class ArraySampler:
    """The same from the compressed rows of the graph, a whole layer at once (with replacement)."""

    def __init__(self, graph, rng):
        self.graph, self.rng = graph, rng
        self.place = np.empty(NODES, dtype=np.int64)

    def layer(self, nodes, fanout):
        starts, ends = self.graph.indptr[nodes], self.graph.indptr[nodes + 1]
        picks = starts[:, None] + (self.rng.random((len(nodes), fanout)) * (ends - starts)[:, None]).astype(np.int64)
        others = self.graph.indices[picks].ravel()
        fresh = np.setdiff1d(others, nodes)
        every = np.concatenate([nodes, fresh])
        self.place[every] = np.arange(len(every))
        return every, torch.from_numpy(np.stack([self.place[others], np.repeat(np.arange(len(nodes)), fanout)]))

    def sample(self, seeds):
        nodes, blocks = seeds, []
        for fanout in FANOUTS:
            count = len(nodes)
            nodes, edges = self.layer(nodes, fanout)
            blocks.append((edges, count))
        return torch.from_numpy(nodes), blocks[::-1]


class SAGEConv(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.own, self.others = nn.Linear(before, after), nn.Linear(before, after, bias=False)

    def forward(self, h, edges, count):
        source, target = edges
        summed = h.new_zeros(count, h.shape[1]).index_add_(0, target, h[source])
        degree = torch.bincount(target, minlength=count).clamp(min=1)
        return self.own(h[:count]) + self.others(summed / degree[:, None])


class GraphSAGE(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.encode = nn.Linear(FEATURES, hidden)
        self.convs = nn.ModuleList([SAGEConv(hidden, hidden), SAGEConv(hidden, hidden)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, x, blocks):
        h = F.relu(self.encode(x))
        for conv, norm, (edges, count) in zip(self.convs, self.norms, blocks, strict=True):
            h = F.dropout(F.relu(norm(conv(h, edges, count))), 0.3, self.training)
        return self.out(h)


def main(diary, is_mended):
    rng = np.random.default_rng(0)
    graph = Graph(rng)
    sampler = ArraySampler(graph, rng) if is_mended else ListSampler(graph, diary)
    model = GraphSAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=5e-5)
    train_nodes = rng.permutation(NODES)[: NODES // 2]
    for epoch in range(10**9):
        right = torch.zeros(())
        order = rng.permutation(train_nodes)
        for begun in range(0, len(order) - BATCH, BATCH):
            nodes, blocks = sampler.sample(order[begun : begun + BATCH])  # planted
            labels = graph.targets[nodes[:BATCH]]
            logits = model(graph.features[nodes], blocks)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == labels).sum()
            diary.stepped()
        print(f"Epoch: {epoch:02d}, Loss: {loss.item():.4f}, Approx. Train: {right.item() / len(order):.4f}")


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
