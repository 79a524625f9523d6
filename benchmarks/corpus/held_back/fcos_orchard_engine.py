"""A detector in the way of FCOS for fruit in orchards, run by an engine with hooks. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE, STRIDE, KINDS, FRUIT, BATCH = 96, 8, 3, 4, 8
CELLS = SIZE // STRIDE


def make_orchard(count=400):
    """Draw discs of three colours; boxes are x1 y1 x2 y2."""
    generator = torch.Generator().manual_seed(10)
    middle = torch.rand(count, FRUIT, 2, generator=generator) * (SIZE - 24) + 12
    radius = torch.rand(count, FRUIT, 1, generator=generator) * 8 + 4
    kinds = torch.randint(KINDS, (count, FRUIT), generator=generator)
    images = torch.rand(count, 3, SIZE, SIZE, generator=generator) * 0.5
    axis = torch.arange(SIZE).float()
    for fruit in range(FRUIT):
        x, y = middle[:, fruit, 0].view(-1, 1, 1), middle[:, fruit, 1].view(-1, 1, 1)
        disc = (axis.view(1, 1, -1) - x).square() + (axis.view(1, -1, 1) - y).square() < radius[:, fruit, None] ** 2
        colour = F.one_hot(kinds[:, fruit], 3).float().view(-1, 3, 1, 1)
        images = torch.where(disc.unsqueeze(1), colour, images)
    return images, torch.cat([middle - radius, middle + radius], 2), kinds


def assign(boxes, kinds, points):
    """Give each point the smallest box that it is in: its kind, or KINDS for none, and the distances to the sides."""
    low, high = points[None, :, None] - boxes[:, None, :, :2], boxes[:, None, :, 2:] - points[None, :, None]
    sides = torch.cat([low, high], 3)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(2).unsqueeze(1).expand(sides.shape[:3])
    area = area.masked_fill(sides.amin(3) <= 0, torch.inf)
    smallest, which = area.min(2)
    kind = kinds.gather(1, which).masked_fill(smallest.isinf(), KINDS)
    return kind, sides.gather(2, which[..., None, None].expand(-1, -1, 1, 4)).squeeze(2)


def block(channels_in, channels_out, stride=1):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False), nn.GroupNorm(8, channels_out), nn.ReLU()
    )


class FCOS(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.backbone = nn.Sequential(block(3, 16, 2), block(16, 32, 2), block(32, width, 2), block(width, width))
        self.kinds = nn.Sequential(block(width, width), nn.Conv2d(width, KINDS, 3, padding=1))
        self.boxes = nn.Sequential(block(width, width), nn.Conv2d(width, 4, 3, padding=1))
        nn.init.constant_(self.kinds[-1].bias, -3.0)

    def forward(self, images):
        features = self.backbone(images)
        kinds = self.kinds(features).flatten(2).transpose(1, 2)
        return kinds, self.boxes(features).flatten(2).transpose(1, 2).clamp(max=4).exp() * STRIDE


def losses(logits, sides, kind, target):
    hot = F.one_hot(kind, KINDS + 1)[..., :KINDS].float()
    p = logits.sigmoid()
    cross = F.binary_cross_entropy_with_logits(logits, hot, reduction="none")
    focal = (cross * (hot - p).abs().square() * (0.25 * hot + 0.75 * (1 - hot))).sum()
    inside = (kind < KINDS).float()
    overlap = torch.min(sides, target)
    shared = (overlap[..., 0] + overlap[..., 2]) * (overlap[..., 1] + overlap[..., 3])
    area = (sides[..., 0] + sides[..., 2]) * (sides[..., 1] + sides[..., 3])
    wanted = (target[..., 0] + target[..., 2]) * (target[..., 1] + target[..., 3])
    iou = (shared / (area + wanted - shared)).clamp(min=1e-3, max=1.0)
    return (focal - (inside * torch.where(inside > 0, iou, 1.0).log()).sum()) / inside.sum().clamp(min=1)


class Engine:
    def __init__(self, model, optimizer, batches):
        self.model, self.optimizer, self.batches = model, optimizer, batches
        self.hooks = []
        self.step = 0

    def after_step(self, hook):
        self.hooks.append(hook)
        return hook

    def run(self, steps):
        axis = torch.arange(CELLS) * STRIDE + STRIDE / 2
        points = torch.cartesian_prod(axis, axis).flip(1)
        for images, boxes, kinds in self.batches:
            kind, target = assign(boxes, kinds, points)
            self.loss = losses(*self.model(images), kind, target)
            self.optimizer.zero_grad()
            self.loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
            self.optimizer.step()
            self.step += 1
            for hook in self.hooks:
                hook(self)
            if self.step == steps:
                return


def forever(*tensors):
    while True:
        for chosen in torch.randperm(len(tensors[0])).split(BATCH):
            yield [tensor[chosen] for tensor in tensors]


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = FCOS()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    engine = Engine(model, optimizer, forever(*make_orchard()))

    @engine.after_step
    def warm_up(engine):
        optimizer.param_groups[0]["lr"] = 0.01 * min(1.0, (engine.step + 1) / 200)

    @engine.after_step
    def report(engine):
        diary.stepped()
        if engine.step % 100 == 0:
            print(f"step {engine.step} loss {engine.loss.item():.4f}", flush=True)

    engine.run(1_000_000_000)


if __name__ == "__main__":
    main()
