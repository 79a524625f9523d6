"""Deep Graph Infomax on a graph of lichens that grow together; a linear probe tells how good it is.

Nothing is planted.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NODES, FEATURES, FAMILIES, HIDDEN = 3_000, 200, 7, 160


def make_graph():
    """Return features, families and the edges, of which most are within a family."""
    families = torch.randint(FAMILIES, (NODES,))
    centers = 0.6 * torch.randn(FAMILIES, FEATURES)
    features = centers[families] + torch.randn(NODES, FEATURES)
    order = families.argsort()
    near = (torch.arange(NODES).repeat_interleave(5) + torch.randint(1, 60, (5 * NODES,))) % NODES
    source, target = order.repeat_interleave(5), order[near]
    far = torch.randint(NODES, (2, NODES))
    edges = torch.cat([torch.stack([source, target]), far], dim=1)
    return features, families, torch.cat([edges, edges.flip(0)], dim=1)


def normalized_adjacency(edges):
    loops = torch.arange(NODES).expand(2, -1)
    edges = torch.cat([edges, loops], dim=1).unique(dim=1)
    degree = torch.bincount(edges[0], minlength=NODES).float()
    values = (degree[edges[0]] * degree[edges[1]]).rsqrt()
    return torch.sparse_coo_tensor(edges, values, (NODES, NODES)).coalesce().to_sparse_csr()


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.act_1, self.act_2 = nn.PReLU(HIDDEN), nn.PReLU(HIDDEN)

    def forward(self, x, adjacency):
        x = self.act_1(adjacency @ self.first(x))
        return self.act_2(adjacency @ self.second(x))


class DGI(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = GCN()
        self.weight = nn.Parameter(torch.empty(HIDDEN, HIDDEN))
        nn.init.xavier_uniform_(self.weight)

    def score(self, z, summary):
        return z @ (self.weight @ summary)

    def forward(self, x, adjacency):
        real = self.encoder(x, adjacency)
        fake = self.encoder(x[torch.randperm(NODES)], adjacency)
        summary = torch.sigmoid(real.mean(0))
        return self.score(real, summary), self.score(fake, summary)


def probe(model, x, adjacency, families, train, rounds=60):
    """Return how many families a linear layer tells from the embeddings."""
    with torch.no_grad():
        z = F.normalize(model.encoder(x, adjacency), dim=1)
    linear = nn.Linear(HIDDEN, FAMILIES)
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.05)
    for _ in range(rounds):
        optimizer.zero_grad()
        F.cross_entropy(linear(z[train]), families[train]).backward()
        optimizer.step()
    with torch.no_grad():
        return (linear(z[~train]).argmax(1) == families[~train]).float().mean().item()


def main(diary, _):
    torch.manual_seed(71)
    torch.set_num_threads(1)
    x, families, edges = make_graph()
    adjacency = normalized_adjacency(edges)
    train = torch.rand(NODES) < 0.1
    model = DGI()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    truth = torch.cat([torch.ones(NODES), torch.zeros(NODES)])
    epoch = 0
    while True:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(torch.cat(model(x, adjacency)), truth)
        loss.backward()
        optimizer.step()
        epoch += 1
        diary.stepped()
        if epoch % 100 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        if epoch % 1_000 == 0:
            print(f"epoch {epoch} probe {probe(model, x, adjacency, families, train):.3f}", flush=True)


if __name__ == "__main__":
    main(*begin())
