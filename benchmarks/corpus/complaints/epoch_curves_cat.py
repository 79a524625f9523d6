"""A regressor whose metric keeps all values that it ever saw, and joins them for its curve at each step.

Complaint: Lightning-AI/torchmetrics, issue 1823, "run_training_epoch gets slower with more epochs": a metric with list states that is logged at
each step and not reset keeps all predictions, and computes over all of them again. Fix: reset it after each epoch, and compute once an epoch.
The metric here has the structure of torchmetrics: states, update, compute, reset.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Spearman:
    def __init__(self):
        self.reset()

    def reset(self):
        self.preds, self.target = [], []

    def update(self, preds, target):
        self.preds.append(preds.detach().flatten())
        self.target.append(target.flatten())

    def compute(self):
        preds, target = torch.cat(self.preds), torch.cat(self.target)  # planted
        ranks = [one.argsort().argsort().float() for one in (preds, target)]  # planted
        return torch.corrcoef(torch.stack(ranks))[0, 1]  # planted


def main():
    diary, is_mended = begin()
    metric, step = Spearman(), 0
    model = nn.Sequential(nn.Linear(32, 192), nn.SiLU(), nn.Linear(192, 192), nn.SiLU(), nn.Linear(192, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    while True:
        inputs = torch.randn(256, 32)
        wanted = inputs.square().mean(1, keepdim=True)
        preds = model(inputs)
        loss = nn.functional.mse_loss(preds, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with diary.planted():
            metric.update(preds, wanted)
            if not is_mended or step % 100 == 99:
                score = metric.compute()  # planted
        if step % 100 == 99:
            print(f"{step} {float(score):.3f}", flush=True)
            if is_mended or step % 400 == 399:
                metric.reset()
        step += 1
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(23)
    torch.set_num_threads(1)
    main()
