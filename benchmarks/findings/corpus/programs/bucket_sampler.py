"""Tagging sentences of alike lengths: the sampler sorts them in Python for each batch, which costs more than to read it."""

import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SENTENCES, BATCH, TAGS = 20_000, 16, 12


class Sentences(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        words = torch.arange(index, index + 40) % 1000
        return words, words % TAGS


class AlikeLengths(Sampler):
    """Gives batches of sentences with about the same length."""

    def __init__(self, lengths, diary, keeps_order):
        self.lengths, self.diary, self.keeps_order = lengths, diary, keeps_order
        self.ordered = sorted(range(len(lengths)), key=lengths.__getitem__)

    def __iter__(self):
        chance = random.Random(3)
        while True:
            if self.keeps_order:
                first = chance.randrange(SENTENCES - BATCH)
                yield self.ordered[first : first + BATCH]
                continue
            with self.diary.planted():
                wanted = chance.choice(self.lengths)
                near = sorted(range(SENTENCES), key=lambda one: abs(self.lengths[one] - wanted))  # planted
            yield near[:BATCH]

    def __len__(self):
        return 10**6


def main():
    diary, is_mended = begin()
    lengths = [random.Random(seed).randint(5, 40) for seed in range(SENTENCES)]
    sampler = AlikeLengths(lengths, diary, keeps_order=is_mended)
    loader = DataLoader(Sentences(lengths), batch_sampler=sampler)
    embed, tagger, head = nn.Embedding(1000, 64), nn.GRU(64, 64, batch_first=True), nn.Linear(64, TAGS)
    model = nn.ModuleList([embed, tagger, head])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for words, tags in loader:  # planted
        hidden, _ = tagger(embed(words))
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
