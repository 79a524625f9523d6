"""Steps in the form of pytorch/examples, ``mnist/main.py``: ``batch_idx`` of an epoch, a test after each epoch.

What is printed tells samples, not steps. Usage: mnist_main.py DIARY.
"""

import diary
import torch
from torch.standin import Network, loader

BATCH_SIZE = 64
BATCHES = 130


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    model.train()
    criterion = torch.nn.CrossEntropyLoss()
    for batch_idx, (data, target) in enumerate(loader(BATCHES, 0.008)):
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
        diary.stepped(batch_idx)
        if batch_idx % 10 == 0:
            seen = batch_idx * BATCH_SIZE
            print(f"Train Epoch: {epoch} [{seen}/{BATCHES * BATCH_SIZE}]\tLoss: {loss.item():.6f}", flush=True)


def test(model: torch.nn.Module) -> None:
    model.eval()
    test_loss = 0.0
    correct = 0
    with torch.no_grad():
        for data, _target in loader(20, 0.01):
            output = model(data)
            test_loss += output.item()
            correct += 7
    print(f"\nTest set: Average loss: {test_loss:.4f}, Accuracy: {correct}/140\n", flush=True)


def main() -> None:
    model = Network(0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, 1_001):
        train(model, optimizer, epoch)
        test(model)
        scheduler.step()


diary.begin()
main()
