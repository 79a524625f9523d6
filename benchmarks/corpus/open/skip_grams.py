"""Vectors of words by skip-grams with negative samples, drawn for whole batches.

Nothing is planted: pairs and negatives are index operations, and the gradients are sparse.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, WIDTH, WINDOW, NEGATIVES = 20_000, 128, 4, 10


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Embedding(VOCABULARY, WIDTH, sparse=True)
        self.v = nn.Embedding(VOCABULARY, WIDTH, sparse=True)

    def forward(self, centers, contexts, negatives):
        center = self.u(centers)
        positive = (center * self.v(contexts)).sum(1)
        negative = torch.bmm(self.v(negatives), center[:, :, None]).squeeze(2)
        return -(nn.functional.logsigmoid(positive).mean() + nn.functional.logsigmoid(-negative).mean())


def main():
    diary, _ = begin()
    words = torch.randint(VOCABULARY, (300_000,))
    weights = torch.rand(VOCABULARY).pow(0.75).cumsum(0)
    skip_gram_model = SkipGram()
    optimizer = torch.optim.SparseAdam(skip_gram_model.parameters(), lr=1e-3)
    while True:
        for places in torch.randperm(len(words) - 2 * WINDOW).split(1024):
            shifts = torch.randint(1, WINDOW + 1, places.shape)
            negatives = torch.searchsorted(weights, torch.rand(len(places), NEGATIVES) * weights[-1])
            loss = skip_gram_model(words[places], words[places + shifts], negatives.clamp(max=VOCABULARY - 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    main()
