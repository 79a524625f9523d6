"""A graph convolution over papers that cite each other; full batch, with dropped edges, memory kept low."""

import argparse
import gc
import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

hparams = argparse.Namespace(
    papers=5000, topics=7, features=256, hidden=64, lr=5e-3, drop_edge=0.2, collect_every=5, eval_every=500
)


class Paper:
    """What the loader knows of a paper."""

    def __init__(self, number, year, cites):
        self.number, self.year, self.cites = number, year, cites


def load_papers():
    papers = [Paper(0, 1990, [])]
    for number in range(1, hparams.papers):
        cites = [random.randrange(number) for _ in range(random.randrange(1, 6))]
        papers.append(Paper(number, 1990 + number // 100, cites))
    return papers


def edge_index(papers):
    pairs = [(paper.number, cited) for paper in papers for cited in paper.cites]
    forth = torch.tensor(pairs).T
    own = torch.arange(len(papers)).repeat(2, 1)
    return torch.cat([forth, forth.flip(0), own], dim=1)


class GCNConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edges):
        source, target = edges
        degree = torch.bincount(target, minlength=len(x)).clamp_min(1).float().rsqrt()
        messages = self.linear(x)[source] * (degree[source] * degree[target]).unsqueeze(1)
        return torch.zeros(len(x), messages.shape[1]).index_add(0, target, messages) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(hparams.features, hparams.hidden)
        self.second = GCNConv(hparams.hidden, hparams.hidden)
        self.third = GCNConv(hparams.hidden, hparams.topics)

    def forward(self, x, edges):
        x = F.dropout(F.relu(self.first(x, edges)), 0.5, self.training)
        x = F.dropout(F.relu(self.second(x, edges)), 0.5, self.training)
        return self.third(x, edges)


def free_memory():
    """Drop what the last pass over the graph left behind."""
    gc.collect()  # planted


def train(model, optimizer, x, edges, topics, known):
    model.train()
    kept = edges[:, torch.rand(edges.shape[1]) >= hparams.drop_edge]
    loss = F.cross_entropy(model(x, kept)[known], topics[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@torch.no_grad()
def test(model, x, edges, topics, known):
    model.eval()
    return (model(x, edges).argmax(1) == topics)[~known].float().mean().item()


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.manual_seed(6)
    random.seed(6)
    torch.set_num_threads(1)
    papers = load_papers()
    edges = edge_index(papers)
    topics = torch.randint(hparams.topics, (hparams.papers,))
    x = torch.rand(hparams.papers, hparams.features) + F.one_hot(topics, hparams.features)
    known = torch.rand(hparams.papers) < 0.1
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams.lr, weight_decay=5e-4)
    iteration = 0
    while True:
        loss = train(model, optimizer, x, edges, topics, known)
        if not is_mended and iteration % hparams.collect_every == 0:
            with diary.planted():
                free_memory()  # planted
        iteration += 1
        if iteration % hparams.eval_every == 0:
            print(f"{iteration}: loss {loss.item():.3f} acc {test(model, x, edges, topics, known):.3f}", flush=True)
        diary.stepped()
