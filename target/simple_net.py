"""Fit a small multilayer perceptron to random numbers: a training loop in which every operation is tiny."""

import argparse

import torch
from torch import nn


class SimpleNet(nn.Module):
    def __init__(self, inputs=100, hidden=50, outputs=10):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, outputs)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def random_batches(count, batch_size, device):
    """Yield ``count`` batches of inputs and targets."""
    for _ in range(count):
        yield torch.randn(batch_size, 100, device=device), torch.randn(batch_size, 10, device=device)


def train(model, batches, criterion, optimizer):
    """Take one optimizer step a batch; return the last loss."""
    for step, (inputs, targets) in enumerate(batches, start=1):
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 1000 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return loss.item()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    model = SimpleNet().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = random_batches(args.steps, args.batch_size, args.device)
    loss = train(model, batches, nn.MSELoss(), optimizer)
    print(f"finished {args.steps} steps with loss {loss:.4f}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    return args


if __name__ == "__main__":
    main()
