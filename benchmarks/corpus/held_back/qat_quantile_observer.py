"""Quantization-aware training: each observer sorts its activations anew for the quantile that clips them."""

import itertools
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLASSES, IMAGE = 10, 32


class FakeQuantize(torch.autograd.Function):
    """Round to the levels of an integer; gradients pass where nothing was clipped."""

    @staticmethod
    def forward(ctx, x, scale, low, high):
        levels = torch.round(x / scale)
        ctx.save_for_backward((levels >= low) & (levels <= high))
        return levels.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None


class QuantileObserver(nn.Module):
    """The range of activations without their outliers, as an average over batches."""

    def __init__(self, diary, quantile=0.999, momentum=0.05):
        super().__init__()
        self.diary, self.quantile, self.momentum = diary, quantile, momentum
        self.register_buffer("top", torch.zeros(()))

    @torch.no_grad()
    def measure(self, x):
        return torch.quantile(x.abs().flatten(), self.quantile)  # planted

    def forward(self, x):
        if self.training:
            with self.diary.planted():
                top = self.measure(x.detach())  # planted
            self.top.lerp_(top, self.momentum) if self.top > 0 else self.top.copy_(top)
        return self.top.clamp(min=1e-6)


class MaxObserver(nn.Module):
    def __init__(self, momentum=0.05):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("top", torch.zeros(()))

    def forward(self, x):
        if self.training:
            top = x.detach().abs().amax()
            self.top.lerp_(top, self.momentum) if self.top > 0 else self.top.copy_(top)
        return self.top.clamp(min=1e-6)


class QuantizedConv(nn.Module):
    """A convolution whose weights (by channel) and outputs are rounded to 8 bits in the forward pass."""

    def __init__(self, before, after, observer, stride=1, bits=8):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm, self.observer = nn.BatchNorm2d(after), observer
        self.top_level = 2 ** (bits - 1) - 1

    def forward(self, x):
        scale = self.conv.weight.detach().abs().amax((1, 2, 3), keepdim=True) / self.top_level
        weight = FakeQuantize.apply(self.conv.weight, scale, -self.top_level, self.top_level)
        x = F.conv2d(x, weight, stride=self.conv.stride, padding=1)
        x = F.relu(self.norm(x))
        levels = 2 * self.top_level + 1
        return FakeQuantize.apply(x, self.observer(x) / levels, 0, levels)  # planted


class QuantizedVGG(nn.Module):
    def __init__(self, make_observer, widths=(32, 64, 96)):
        super().__init__()
        layers, before = [], 3
        for width in widths:
            layers += [
                QuantizedConv(before, width, make_observer()),
                QuantizedConv(width, width, make_observer(), stride=2),
            ]
            before = width
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(before, CLASSES)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def textures(count):
    """Stripes in ten directions."""
    labels = torch.randint(CLASSES, (count,))
    angles = torch.pi * labels / CLASSES
    y, x = torch.meshgrid(torch.arange(IMAGE), torch.arange(IMAGE), indexing="ij")
    along = x * angles.cos().view(-1, 1, 1) + y * angles.sin().view(-1, 1, 1)
    waves = torch.sin(0.8 * along + 6.28 * torch.rand(count, 1, 1))
    return TensorDataset(
        waves[:, None] * torch.rand(count, 3, 1, 1) + 0.3 * torch.randn(count, 3, IMAGE, IMAGE), labels
    )


@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum() for x, y in DataLoader(dataset, 100))
    model.train()
    return right.item() / len(dataset)


def main(diary, is_mended):
    model = QuantizedVGG(MaxObserver if is_mended else lambda: QuantileObserver(diary))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    train_loader = DataLoader(textures(3200), batch_size=16, shuffle=True, drop_last=True)
    test_set = textures(200)
    for epoch in itertools.count():
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            diary.stepped()
        print(f"epoch {epoch}: loss {loss.item():.3f}, int8 accuracy {evaluate(model, test_set):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
