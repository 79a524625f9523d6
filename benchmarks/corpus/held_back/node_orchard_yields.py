"""Neural oblivious decision ensembles that foretell the yield of orchards: soft trees of a fixed depth.

Nothing is planted.
"""

import copy
import itertools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ROWS, VALIDATION, FEATURES, BATCH = 40_000, 4_000, 40, 256


def make_orchards():
    x = torch.randn(ROWS, FEATURES)
    y = torch.where(x[:, 0] > 0, x[:, 1] * x[:, 2], x[:, 3].abs()) + 0.5 * (x[:, 4] > 0.3).float()
    y = y + 0.1 * torch.randn(ROWS)
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


class ObliviousTrees(nn.Module):
    """Many trees at once: each level of a tree asks one soft question of all rows."""

    def __init__(self, inputs, trees=96, depth=4):
        super().__init__()
        self.select = nn.Parameter(torch.randn(inputs, trees * depth))
        self.thresholds = nn.Parameter(torch.randn(trees, depth))
        self.log_temperature = nn.Parameter(torch.zeros(trees, depth))
        self.leaves = nn.Parameter(torch.randn(trees, 2**depth) / trees**0.5)
        self.trees, self.depth = trees, depth

    def forward(self, x):
        chosen = (x @ self.select.softmax(0)).view(-1, self.trees, self.depth)
        right = torch.sigmoid((chosen - self.thresholds) * self.log_temperature.exp())
        paths = torch.stack([1 - right, right], dim=-1)
        weights = paths[:, :, 0]
        for level in range(1, self.depth):
            weights = (weights.unsqueeze(-1) * paths[:, :, level].unsqueeze(-2)).flatten(2)
        return (weights * self.leaves).sum(-1)


class NODE(nn.Module):
    def __init__(self, layers=3, trees=96):
        super().__init__()
        self.layers = nn.ModuleList([ObliviousTrees(FEATURES + i * trees, trees) for i in range(layers)])

    def forward(self, x):
        outputs = []
        for layer in self.layers:
            outputs.append(layer(torch.cat([x, *outputs], dim=1)))
        return torch.cat(outputs, dim=1).mean(1)


class Engine:
    """Trains for ever, and halves the rate of learning where the validation stands still."""

    def __init__(self, model, optimizer, diary, patience=3):
        self.model, self.optimizer, self.diary = model, optimizer, diary
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.5, patience=patience, min_lr=1e-5
        )
        self.best, self.best_weights = float("inf"), None

    def train_epoch(self, loader):
        self.model.train()
        total = torch.zeros(())
        for x, y in loader:
            loss = F.mse_loss(self.model(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            self.diary.stepped()
        return total.item() / len(loader)

    @torch.no_grad()
    def validate(self, x, y):
        self.model.eval()
        errors = [
            F.mse_loss(self.model(a), b, reduction="sum") for a, b in zip(x.split(500), y.split(500), strict=True)
        ]
        return torch.stack(errors).sum().item() / len(y)

    def fit(self, loader, validation):
        for epoch in itertools.count(1):
            loss = self.train_epoch(loader)
            error = self.validate(*validation)
            self.scheduler.step(error)
            if error < self.best:
                self.best, self.best_weights = error, copy.deepcopy(self.model.state_dict())
            print(f"epoch {epoch} loss {loss:.4f} validation {error:.4f} best {self.best:.4f}", flush=True)


def main(diary, _):
    torch.manual_seed(67)
    torch.set_num_threads(1)
    x, y = make_orchards()
    train = TensorDataset(x[VALIDATION:], y[VALIDATION:])
    loader = DataLoader(train, sampler=BatchSampler(RandomSampler(train), BATCH, drop_last=True), batch_size=None)
    model = NODE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    Engine(model, optimizer, diary).fit(loader, (x[:VALIDATION], y[:VALIDATION]))


if __name__ == "__main__":
    main(*begin())
