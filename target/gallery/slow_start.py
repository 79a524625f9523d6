"""Count the words of many texts before training; ``--fixed`` reads the counts of an earlier run."""

import random
import time
from collections import Counter

import torch
from _options import parse_args
from torch import nn

# The texts take so many times as long as the training, and a minute at least.
COUNTING, LEAST_S = 1.2, 70
WORDS = 10_000


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    counts = Counter({f"word{number}": 1 for number in range(WORDS)}) if args.fixed else count_words(args.seconds)
    model = nn.Sequential(nn.Embedding(len(counts), 256), nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, len(counts), args)


def count_words(seconds):
    """Return how often each word occurs in texts that are made up."""
    counts, number, until = Counter(), 0, time.perf_counter() + max(COUNTING * seconds, LEAST_S)
    while time.perf_counter() < until:
        count_text(counts, number)
        number += 1
    return counts


def count_text(counts, number):
    words = random.Random(number)
    counts.update(f"word{words.randrange(WORDS)}" for _ in range(10_000))


def train(model, optimizer, words, args):
    criterion = nn.CrossEntropyLoss()
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.randint(words, (256,)), torch.randint(10, (256,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
