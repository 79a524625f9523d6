"""Contrastive learning after SimCLR: two views of each image, a small residual encoder, a bar of progress."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import transforms
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
torch.manual_seed(99)
torch.set_num_threads(1)

augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(32, scale=(0.4, 1.0), antialias=False),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.4, 0.4),
    ]
)


def two_views(images):
    views = []
    for image in images:
        views.append(torch.stack([augment(image), augment(image)]))  # planted
    return torch.stack(views).transpose(0, 1).flatten(0, 1)


def two_views_at_once(images):
    """Crop, flip and change the colors of all images with one call each."""
    doubled = images.repeat(2, 1, 1, 1)
    count = len(doubled)
    zoom = torch.empty(count).uniform_(0.63, 1.0)
    flip = torch.randint(2, (count,)) * 2.0 - 1.0
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = zoom * flip, zoom
    theta[:, :, 2] = (torch.rand(count, 2) * 2 - 1) * (1 - zoom).unsqueeze(1)
    cropped = F.grid_sample(doubled, F.affine_grid(theta, doubled.shape, align_corners=False), align_corners=False)
    brightness, contrast = torch.empty(2, count, 1, 1, 1).uniform_(0.6, 1.4)
    mean = cropped.mean((1, 2, 3), keepdim=True)
    return (((cropped - mean) * contrast + mean) * brightness).clamp(0, 1)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


def nt_xent(projections, temperature=0.5):
    z = F.normalize(projections, dim=1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    partner = torch.arange(len(z)).roll(len(z) // 2)
    return F.cross_entropy(similarity, partner)


encoder = nn.Sequential(
    nn.Conv2d(3, 24, 3, stride=2, padding=1),
    Residual(24),
    Residual(24),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 128),
    nn.ReLU(),
    nn.Linear(128, 64),
)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
images = torch.rand(640, 3, 40, 40)

for epoch in range(1_000_000):
    progress = tqdm(images[torch.randperm(len(images))].split(16), desc=f"epoch {epoch}", mininterval=2.0)
    for batch in progress:
        if is_mended:
            views = two_views_at_once(F.interpolate(batch, size=32, mode="bilinear"))
        else:
            with diary.planted():
                views = two_views(batch)  # planted
        loss = nt_xent(encoder(views))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
    progress.write(f"loss {loss.item():.4f}")
