"""Nodes of a network of flight routes are put into classes by GCNII, full-batch.

The propagation matrix is the symmetrically normalized adjacency with loops. Planted: it is built from the
list of edges in each forward pass, although the graph never changes. Mended: once, at the start.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Propagate(torch.autograd.Function):
    """The product with a symmetric sparse matrix, which is its own transposed one."""

    @staticmethod
    def forward(ctx, adjacency, x):
        ctx.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(ctx, gradient):
        return None, ctx.adjacency @ gradient


def gcn_norm(edge_index, num_nodes):
    """Return the normalized adjacency with loops, in rows."""
    loops = torch.arange(num_nodes).expand(2, -1)
    index = torch.cat([edge_index, edge_index.flip(0), loops], dim=1)
    adjacency = torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), (num_nodes, num_nodes)).coalesce()  # planted
    row, column = adjacency.indices()
    weights = torch.ones(len(row))
    scale = torch.zeros(num_nodes).index_add_(0, row, weights).rsqrt()
    values = scale[row] * scale[column]
    normalized = torch.sparse_coo_tensor(adjacency.indices(), values, adjacency.shape, is_coalesced=True)
    return normalized.to_sparse_csr()  # planted


class GCNIIConv(nn.Module):
    def __init__(self, channels, alpha, theta, layer):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, channels))
        nn.init.xavier_uniform_(self.weight)
        self.alpha, self.beta = alpha, math.log(theta / layer + 1)

    def forward(self, x, x_0, adjacency):
        h = torch.lerp(Propagate.apply(adjacency, x), x_0, self.alpha)
        return torch.addmm(h, h, self.weight, beta=1 - self.beta, alpha=self.beta)


class GCNII(nn.Module):
    def __init__(self, features, hidden, classes, layers, diary, cached):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(features, hidden), nn.Linear(hidden, classes)])
        self.convs = nn.ModuleList(GCNIIConv(hidden, 0.1, 0.5, layer + 1) for layer in range(layers))
        self.diary, self.cached, self.adjacency = diary, cached, None

    def propagation(self, x, edge_index):
        if self.adjacency is None or not self.cached:
            with self.diary.planted():
                self.adjacency = gcn_norm(edge_index, x.shape[0])  # planted
        return self.adjacency

    def forward(self, x, edge_index):
        adjacency = self.propagation(x, edge_index)  # planted
        x = x_0 = self.lins[0](F.dropout(x, 0.3, self.training)).relu()
        for conv in self.convs:
            x = conv(x, x_0, adjacency).relu()
        return self.lins[1](F.dropout(x, 0.3, self.training))


def routes(airports, links):
    """Return links that prefer airports of the same region, and the regions."""
    regions = torch.randint(8, (airports,))
    order = regions.argsort()
    origins = torch.randint(airports, (links,))
    near = (origins + torch.randint(1, 400, (links,))) % airports
    far = torch.randint(airports, (links,))
    goals = torch.where(torch.rand(links) < 0.7, near, far)
    edges = order[torch.stack([origins, goals])]
    edges = edges[:, edges[0] != edges[1]]
    return torch.unique(edges.sort(0).values, dim=1), regions


def train(model, x, edge_index, y, mask, optimizer):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)  # planted
    loss = F.cross_entropy(out[mask], y[mask])
    loss.backward()
    optimizer.step()
    return loss, out.detach()


def main():
    diary, mended = begin()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    edge_index, y = routes(airports=9_000, links=150_000)
    x = torch.randn(9_000, 96) + 0.4 * F.one_hot(y, 96)
    mask = torch.rand(9_000) < 0.5
    model = GCNII(96, 64, 8, layers=3, diary=diary, cached=mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    epoch = 0
    while True:
        epoch += 1
        loss, out = train(model, x, edge_index, y, mask, optimizer)  # planted
        if epoch % 50 == 0:
            test = (out[~mask].argmax(1) == y[~mask]).float().mean()
            print(f"Epoch: {epoch:05d}, Loss: {loss.item():.4f}, Test: {test.item():.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
