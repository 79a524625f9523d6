"""BYOL: an online network predicts what a slow copy of it sees in another view of the same pictures.

Nothing is planted: the views are made by tensors, and the average of the weights is small beside the two networks.
"""

import copy
import math
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Patterns(Dataset):
    """Pictures of colored clouds; the labels are for the probe alone."""

    def __init__(self, count=1024, classes=10, size=40):
        self.labels = torch.randint(classes, (count,))
        coarse = torch.rand(classes, 3, 6, 6)[self.labels] + 0.3 * torch.randn(count, 3, 6, 6)
        self.pictures = F.interpolate(coarse, size=size, mode="bilinear", align_corners=False).clamp(0, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


class RandomView:
    """A crop, a mirror, other colors, and a blur, for a whole batch with a choice for each picture."""

    def __init__(self, size=32):
        self.size = size
        kernel = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        self.blur = (kernel[:, None] * kernel).expand(3, 1, 5, 5)

    def __call__(self, x):
        n = len(x)
        scale, shift = 0.5 + 0.4 * torch.rand(n), 0.3 * (torch.rand(n, 2) * 2 - 1)
        mirror = torch.where(torch.rand(n) < 0.5, -1.0, 1.0)
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale * mirror, scale, shift
        grid = F.affine_grid(theta, (n, 3, self.size, self.size), align_corners=False)
        x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        x = x * (0.6 + 0.8 * torch.rand(n, 3, 1, 1)) + 0.2 * (torch.rand(n, 1, 1, 1) - 0.5)
        blurred = F.conv2d(x, self.blur, padding=2, groups=3)
        return torch.where(torch.rand(n, 1, 1, 1) < 0.5, blurred, x).clamp(0, 1)


def mlp(before, hidden, after):
    return nn.Sequential(nn.Linear(before, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, after))


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(h + self.skip(x))


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            Residual(width, width, 2),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = mlp(4 * width, 256, 64)

    def forward(self, x):
        return self.projector(self.backbone(x))


class BYOL(nn.Module):
    def __init__(self, base_momentum=0.99):
        super().__init__()
        self.online, self.predictor = Encoder(), mlp(64, 256, 64)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.base_momentum = base_momentum

    def forward(self, one, two):
        with torch.no_grad():
            wanted_two, wanted_one = self.target(one), self.target(two)
        return self.loss(self.predictor(self.online(one)), wanted_one) + self.loss(
            self.predictor(self.online(two)), wanted_two
        )

    @staticmethod
    def loss(predicted, wanted):
        return (2 - 2 * F.cosine_similarity(predicted, wanted, dim=-1)).mean()

    @torch.no_grad()
    def update_target(self, progress):
        momentum = 1 - (1 - self.base_momentum) * (math.cos(math.pi * progress) + 1) / 2
        slow, fast = list(self.target.parameters()), list(self.online.parameters())
        torch._foreach_lerp_(slow, fast, 1 - momentum)


@torch.no_grad()
def knn_probe(encoder, dataset, count=400):
    """Return the accuracy of the nearest neighbor in the space of the backbone."""
    encoder.eval()
    features = F.normalize(encoder.backbone(F.interpolate(dataset.pictures[:count], size=32)))
    likeness = (features @ features.T).fill_diagonal_(-1)
    encoder.train()
    labels = dataset.labels[:count]
    return (labels[likeness.argmax(1)] == labels).float().mean().item()


def main(diary, _, total=200_000):
    dataset, model, view = Patterns(), BYOL(), RandomView()
    loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
    learned = [*model.online.parameters(), *model.predictor.parameters()]
    optimizer = torch.optim.SGD(learned, lr=0.03, momentum=0.9, weight_decay=4e-4)
    step, epoch = 0, 0
    while True:
        for pictures, _ in loader:
            loss = model(view(pictures), view(pictures))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.update_target(min(1.0, step / total))
            step += 1
            diary.stepped()
        epoch += 1
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, kNN {knn_probe(model.online, dataset):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
