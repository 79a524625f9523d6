"""Train, and work out the mean of all losses so far at every step; ``--fixed`` keeps their sum."""

import argparse
import statistics
import time

import torch
from torch import nn


def main():
    args = parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps, losses, loss_sum, mean = time.perf_counter(), 0, [], 0.0, 0.0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(128, 256), torch.randint(10, (128,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if args.fixed:
            loss_sum += loss.item()
            mean = loss_sum / steps
        else:
            losses.append(loss.item())
            mean = statistics.mean(losses)
    print(f"{steps} steps at {steps / elapsed:.2f}/s, with a mean loss of {mean:.2f}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true", help="train without the bottleneck")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
