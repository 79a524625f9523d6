"""Prediction of links in a graph of friends by mean aggregation over the whole graph, with fresh negatives each step.

Nothing is planted: the normalized adjacency is made once, and ranks are computed every 100 steps.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import networkx as nx
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def friends(people=1800, groups=12):
    graph = nx.random_partition_graph([people // groups] * groups, 0.06, 0.001, seed=1)
    edges = torch.tensor(list(graph.edges()))
    edges = edges[torch.randperm(len(edges))]
    held = len(edges) // 10
    return graph.number_of_nodes(), edges[held:], edges[:held]


def mean_adjacency(nodes, edges):
    both = torch.cat([edges, edges.flip(1)]).T
    degree = torch.bincount(both[0], minlength=nodes).clamp(min=1).float()
    matrix = torch.sparse_coo_tensor(both, 1 / degree[both[0]], (nodes, nodes))
    return matrix.coalesce().to_sparse_csr(), matrix.transpose(0, 1).coalesce().to_sparse_csr()


class Aggregate(torch.autograd.Function):
    """A product with a fixed sparse matrix; backwards with its transpose, which is kept as well."""

    @staticmethod
    def forward(ctx, matrix, transposed, x):
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx, up):
        return None, None, ctx.transposed @ up


class SageLayer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.own, self.near = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out, bias=False)

    def forward(self, pair, x):
        return self.own(x) + self.near(Aggregate.apply(*pair, x))


class LinkPredictor(nn.Module):
    def __init__(self, nodes, dim=192):
        super().__init__()
        self.nodes = nn.Parameter(0.1 * torch.randn(nodes, dim))
        self.layers = nn.ModuleList(SageLayer(dim, dim) for _ in range(2))
        self.score = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def embed(self, pair):
        x = self.nodes
        for number, layer in enumerate(self.layers):
            x = layer(pair, F.dropout(F.relu(x) if number else x, 0.2, self.training))
        return x

    def forward(self, h, pairs):
        return self.score(h[pairs[:, 0]] * h[pairs[:, 1]]).squeeze(1)


@torch.inference_mode()
def reciprocal_rank(model, pair, held, nodes):
    model.eval()
    h = model.embed(pair)
    chosen = held[torch.randint(len(held), (60,))]
    others = torch.stack([chosen[:, :1].expand(-1, 50), torch.randint(nodes, (60, 50))], 2)
    better = model(h, others.reshape(-1, 2)).view(60, 50) >= model(h, chosen)[:, None]
    model.train()
    return (1 / (1 + better.sum(1))).mean().item()


def main(diary, _):
    torch.set_num_threads(1)
    torch.manual_seed(23)
    nodes, edges, held = friends()
    pair = mean_adjacency(nodes, edges)
    model = LinkPredictor(nodes)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, 1_000_000_000):
        h = model.embed(pair)
        positive = edges[torch.randint(len(edges), (1500,))]
        negative = torch.stack([positive[:, 0], torch.randint(nodes, (len(positive),))], 1)
        scores = model(h, torch.cat([positive, negative]))
        truth = torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))])
        loss = F.binary_cross_entropy_with_logits(scores, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        if step % 100 == 0:
            rank = reciprocal_rank(model, pair, held, nodes)
            print(f"step {step} loss {loss.item():.4f} mrr {rank:.3f}", flush=True)


if __name__ == "__main__":
    main(*begin())
