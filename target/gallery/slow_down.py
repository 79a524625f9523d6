"""Train, and work out the mean of all losses so far at every step; ``--fixed`` keeps their sum."""

import statistics
import time

import torch
from _options import parse_args
from torch import nn


def main():
    args = parse_args(__doc__)
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


if __name__ == "__main__":
    main()
