"""Steps in the form of pytorch/examples, ``imagenet/main.py``: meters count samples and batches beside the index.

``validate`` has a loop with the same names. Usage: imagenet_main.py DIARY.
"""

from __future__ import annotations

import time

import diary
import torch
from torch.standin import Network, loader


class AverageMeter:
    def __init__(self) -> None:
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val: float, n: int = 1) -> None:
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    batch_time, data_time, losses = AverageMeter(), AverageMeter(), AverageMeter()
    criterion = torch.nn.CrossEntropyLoss()
    batches = loader(150, 0.015)
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(batches):
        data_time.update(time.time() - end)
        loss = criterion(model(images), target)
        losses.update(loss.item(), len(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped(i)
        batch_time.update(time.time() - end)
        end = time.time()
        if i % 10 == 0:
            print(
                f"Epoch: [{epoch}][{i + 1:3d}/{len(batches)}]\tTime {batch_time.val:.3f} ({batch_time.avg:.3f})\t"
                f"Data {data_time.val:.3f} ({data_time.avg:.3f})\tLoss {losses.val:.4f} ({losses.avg:.4f})",
                flush=True,
            )


def validate(model: torch.nn.Module) -> float:
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for i, (images, _target) in enumerate(loader(40, 0.015)):
            top1.update(model(images).item(), len(images))
            if i % 10 == 0:
                print(f"Test: [{i}/40]\tAcc@1 {top1.val:.3f}", flush=True)
    return top1.avg


def main() -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best_acc1 = 0.0
    for epoch in range(90):
        train(model, optimizer, epoch)
        best_acc1 = max(best_acc1, validate(model))


diary.begin()
main()
