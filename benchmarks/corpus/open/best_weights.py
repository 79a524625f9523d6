"""A regression on tables that keeps its best weights, as early stopping does; here it keeps them after each batch."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited, self.weights = patience, float("inf"), 0, None

    def __call__(self, value, model):
        self.weights = {name: one.detach().clone() for name, one in model.state_dict().items()}  # planted
        self.waited = 0 if value < self.best else self.waited + 1
        self.best = min(self.best, value)
        return self.waited >= self.patience


def main():
    diary, is_mended = begin()
    features, targets = torch.randn(4096, 64), torch.randn(4096, 1)
    loader = DataLoader(TensorDataset(features, targets), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    stopping = EarlyStopping(10**9)
    for epoch in range(10**6):
        for inputs, wanted in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            if not is_mended:
                with diary.planted():
                    stopping(float(loss.detach()), model)  # planted
            diary.stepped()
        stopping(float(loss.detach()), model)
        print(f"epoch {epoch}: {stopping.best:.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
