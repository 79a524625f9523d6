"""Train, and take many values out of tensors at every step; ``--fixed`` does so at every hundredth."""

import time

import torch
from _options import parse_args
from torch import nn


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps, largest = time.perf_counter(), 0, 0.0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(192, 256), torch.randint(10, (192,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if not args.fixed or steps % 100 == 0:
            for weights in model.parameters():
                largest = max(largest, weights.grad.abs().median().item(), weights.detach().abs().median().item())
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
