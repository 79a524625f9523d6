"""Train on batches of ever new lengths, and compile the model for each; ``--fixed`` compiles it for all lengths."""

import random
import time

import torch
from _options import parse_args
from torch import nn

# Else it would give up after a few lengths, and leave the model as it is.
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 100_000


def main():
    args = parse_args(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(12)], nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compiled = torch.compile(model, backend="eager", dynamic=args.fixed)
    train(compiled, optimizer, args)


def train(model, optimizer, args):
    criterion = nn.CrossEntropyLoss()
    started, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < args.seconds:
        length = random.randrange(64, 1024)
        inputs, labels = torch.rand(length, 256), torch.randint(10, (length,))
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"{steps} steps at {steps / elapsed:.2f}/s")


if __name__ == "__main__":
    main()
