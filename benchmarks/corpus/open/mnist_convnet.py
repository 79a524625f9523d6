"""A convolutional network after pytorch/examples' mnist, with workers. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Digits(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(1, 28, 28, generator=generator), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(32 * 12 * 12, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = torch.flatten(self.dropout1(x), 1)
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


def train(model, loader, optimizer, epoch, diary):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        diary.stepped()
        if batch_idx % 200 == 0:
            print(f"Train Epoch: {epoch} [{batch_idx * len(data)}] Loss: {loss.item():.6f}", flush=True)


def main():
    diary, _ = begin()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    loader = DataLoader(Digits(60_000), batch_size=64, num_workers=1, persistent_workers=True, shuffle=True)
    for epoch in range(1, 1_000_000):
        train(model, loader, optimizer, epoch, diary)


if __name__ == "__main__":
    main()
