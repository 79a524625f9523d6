"""Train, and log statistics of every layer at every step; ``--fixed`` logs at every hundredth."""

import json
import logging
import os
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
    logging.basicConfig(filename=os.devnull, level=logging.INFO)
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        inputs, labels = torch.rand(256, 256), torch.randint(10, (256,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if not args.fixed or steps % 100 == 0:
            for line in range(2500):
                logging.info("step %d, line %d: %s", steps, line, json.dumps({"layers": list(range(50))}))
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
