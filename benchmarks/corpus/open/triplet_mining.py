"""Embeddings by triplets, the hardest of each batch, which are found by operations on the whole matrix of distances.

Nothing is planted: the mining is as small as the loss needs it.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class EmbeddingNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 24, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 5), nn.PReLU(), nn.MaxPool2d(2)
        )
        self.fc = nn.Sequential(nn.Linear(48 * 16, 128), nn.PReLU(), nn.Linear(128, 32))

    def forward(self, x):
        return nn.functional.normalize(self.fc(self.convnet(x).flatten(1)), dim=1)


def hardest_triplets(embeddings, labels):
    distances = torch.cdist(embeddings, embeddings)
    same = labels[:, None] == labels[None]
    positives = distances.masked_fill(~same, -1).argmax(1)
    negatives = distances.masked_fill(same, float("inf")).argmin(1)
    return torch.arange(len(labels)), positives, negatives


def batches(images, labels, size):
    while True:
        rows = torch.randint(len(images), (size,))
        yield images[rows], labels[rows]


def fit(diary):
    images, labels = torch.rand(3000, 1, 28, 28), torch.randint(10, (3000,))
    model, criterion = EmbeddingNet(), nn.TripletMarginLoss(0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (data, target) in enumerate(batches(images, labels, 96)):
        embeddings = model(data)
        anchors, positives, negatives = hardest_triplets(embeddings.detach(), target)
        loss = criterion(embeddings[anchors], embeddings[positives], embeddings[negatives])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"Train: [{step}]\tLoss: {loss.item():.6f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(6)
    torch.set_num_threads(1)
    fit(begin()[0])
