"""Books of a library are put into subjects by R-GCN, full-batch, with four relations. Nothing is planted.

The matrix of each relation and its transposed one are built once.
"""

import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Aggregate(torch.autograd.Function):
    """The product with a sparse matrix, of which the transposed one is at hand for the gradient."""

    @staticmethod
    def forward(ctx, matrix, transposed, x):
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx, gradient):
        return None, None, ctx.transposed @ gradient


class Relation:
    def __init__(self, sources, targets, nodes):
        values = torch.ones(len(sources))
        matrix = torch.sparse_coo_tensor(torch.stack((targets, sources)), values, (nodes, nodes)).coalesce()
        degrees = torch.zeros(nodes).index_add_(0, matrix.indices()[0], matrix.values())
        mean = torch.sparse_coo_tensor(matrix.indices(), matrix.values() / degrees[matrix.indices()[0]], (nodes, nodes))
        self.matrix, self.transposed = mean.to_sparse_csr(), mean.t().coalesce().to_sparse_csr()

    def mean(self, x):
        return Aggregate.apply(self.matrix, self.transposed, x)


class RGCNConv(nn.Module):
    """Weights of relations are mixtures of bases."""

    def __init__(self, inputs, outputs, relations, bases=3):
        super().__init__()
        self.bases = nn.Parameter(torch.empty(bases, inputs, outputs))
        nn.init.xavier_uniform_(self.bases)
        self.mixture = nn.Parameter(torch.randn(relations, bases) / bases)
        self.root = nn.Linear(inputs, outputs)

    def forward(self, x, relations):
        weights = torch.einsum("rb,bio->rio", self.mixture, self.bases)
        out = self.root(x)
        for relation, weight in zip(relations, weights, strict=True):
            out = out + relation.mean(x @ weight)
        return out


class RGCN(nn.Module):
    def __init__(self, features, hidden, classes, relations):
        super().__init__()
        self.conv1 = RGCNConv(features, hidden, relations)
        self.conv2 = RGCNConv(hidden, hidden, relations)
        self.classifier = nn.Linear(hidden, classes)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, relations):
        x = self.conv1(x, relations).relu()
        x = self.conv2(self.dropout(x), relations).relu()
        return self.classifier(self.dropout(x))


def library(nodes=5_000, subjects=10, relations=4, links=40_000):
    subject = torch.randint(subjects, (nodes,))
    by_subject = subject.argsort()
    found = []
    for number in range(relations):
        sources = torch.randint(nodes, (links,))
        offsets = (torch.randn(links) * 60 * (number + 1)).long()
        found.append(Relation(by_subject[sources], by_subject[(sources + offsets) % nodes], nodes))
    return torch.randn(nodes, 64) + 0.3 * F.one_hot(subject, 64), subject, found


def main():
    diary, _ = begin()
    warnings.filterwarnings("ignore", message="Sparse")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y, relations = library()
    train_rows = torch.randperm(len(x))[: len(x) // 2]
    train_y = y[train_rows]
    model = RGCN(64, 96, 10, len(relations))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4, fused=True)
    epoch = 0
    while True:
        epoch += 1
        model.train()
        out = model(x, relations)
        loss = F.cross_entropy(out[train_rows], train_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 50 == 0:
            model.eval()
            with torch.no_grad():
                accuracy = (model(x, relations).argmax(1) == y).float().mean()
            print(f"Epoch: {epoch:04d} Loss: {loss.item():.4f} Accuracy: {accuracy.item():.4f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
