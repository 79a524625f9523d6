"""A plain loop: a small CNN on random images through a DataLoader, with an evaluation and a checkpoint an epoch.

Usage: convolutional.py [--workers N] [--accumulate N] [--bfloat16] [--epochs N]
"""

import argparse
import io
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    """Random images, augmented while they are loaded."""

    def __init__(self, count):
        self.images = torch.randn(count, 3, 32, 32)
        self.labels = torch.randint(10, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].flip(-1) * 0.9
        return (image - image.mean()) / image.std(), self.labels[index]


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def train_epoch(model, loader, optimizer, scheduler, options):
    criterion = nn.CrossEntropyLoss()
    running_loss = 0.0
    for number, (images, labels) in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            logits = model(images)
            loss = criterion(logits, labels) / options.accumulate
        loss.backward()
        if (number + 1) % options.accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        running_loss += loss.item()
    return running_loss / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
    model.train()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    train = DataLoader(Photos(2560), batch_size=64, shuffle=True, num_workers=options.workers)
    held_out = DataLoader(Photos(512), batch_size=64)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    started = time.perf_counter()
    for epoch in range(options.epochs):
        loss = train_epoch(model, train, optimizer, scheduler, options)
        accuracy = evaluate(model, held_out)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}")
    print("steps", options.epochs * len(train), "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
