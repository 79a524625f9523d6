"""Traffic speeds of a net of sensors, forecast with Chebyshev graph convolutions.

Each layer rescales its Laplacian at every call, by the largest eigenvalue, though the net of roads stays as it is.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
torch.manual_seed(3)
torch.set_num_threads(1)

SENSORS, HISTORY, HORIZON, BATCH = 228, 12, 12, 4


def road_net(n):
    """Weights fall with distance, as in DCRNN."""
    places = torch.rand(n, 2)
    distances = torch.cdist(places, places)
    weights = torch.exp(-((distances / distances.std()) ** 2) * 8)
    weights[weights < 0.1] = 0
    return weights.fill_diagonal_(0)


def speeds(weights, steps):
    """Days with a rush hour, made smooth over neighbors."""
    time = torch.arange(steps) / 288
    rush = torch.sin(2 * torch.pi * time[:, None] + torch.rand(SENSORS) * 2)
    noise = torch.randn(steps, SENSORS) @ (weights / weights.sum(1, keepdim=True).clamp(min=1e-3))
    return rush + 0.4 * noise


def scaled_laplacian(weights):
    degree = weights.sum(1)
    inverse_root = degree.clamp(min=1e-6).rsqrt()
    laplacian = torch.eye(len(weights)) - inverse_root[:, None] * weights * inverse_root
    largest = torch.linalg.eigvalsh(laplacian)[-1]
    return 2.0 / largest * laplacian - torch.eye(len(weights))


class ChebConv(nn.Module):
    def __init__(self, c_in, c_out, weights, order=3):
        super().__init__()
        self.order, self.linear = order, nn.Linear(order * c_in, c_out)
        self.register_buffer("weights", weights)
        self.register_buffer("laplacian", scaled_laplacian(weights) if is_mended else None)

    def rescaled(self):
        if self.laplacian is not None:
            return self.laplacian
        with diary.planted():
            return scaled_laplacian(self.weights)  # planted

    def forward(self, x):
        laplacian = self.rescaled()
        terms = [x, laplacian @ x]
        while len(terms) < self.order:
            terms.append(2 * laplacian @ terms[-1] - terms[-2])
        return self.linear(torch.cat(terms, -1))


class STBlock(nn.Module):
    """A gated convolution over time, one over the graph, and one over time again."""

    def __init__(self, c_in, channels, weights):
        super().__init__()
        self.time1 = nn.Conv2d(c_in, 2 * channels, (3, 1))
        self.graph = ChebConv(channels, channels, weights)
        self.time2 = nn.Conv2d(channels, 2 * channels, (3, 1))
        self.norm = nn.LayerNorm(channels)

    def forward(self, x):
        x = F.glu(self.time1(x), 1)
        x = F.relu(self.graph(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        x = F.glu(self.time2(x), 1)
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class STGCN(nn.Module):
    def __init__(self, weights, channels=16):
        super().__init__()
        self.blocks = nn.Sequential(STBlock(1, channels, weights), STBlock(channels, channels, weights))
        self.out = nn.Conv2d(channels, HORIZON, (HISTORY - 8, 1))

    def forward(self, x):
        return self.out(self.blocks(x[:, None]))[:, :, 0]


weights = road_net(SENSORS)
series = speeds(weights, 6000)
windows = series.unfold(0, HISTORY + HORIZON, 1).transpose(1, 2)  # a view: nothing is copied
model = STGCN(weights)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 500, 0.9)

epoch = 0
while True:
    running = torch.zeros(())
    for i, rows in enumerate(torch.randperm(len(windows)).split(BATCH)):
        batch = windows[rows]
        predicted = model(batch[:, :HISTORY])  # planted
        loss = F.smooth_l1_loss(predicted, batch[:, HISTORY:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        diary.stepped()
        if i % 100 == 99:
            print(f"epoch {epoch} batch {i + 1} mean loss {running.item() / (i + 1):.4f}", flush=True)
    epoch += 1
