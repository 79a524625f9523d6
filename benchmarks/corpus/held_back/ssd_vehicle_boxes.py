"""Vehicles found by a small SSD, in the style of detection repositories: default boxes, matching, hard negatives.

Nothing is planted: default boxes are made once, and matching is a few operations on whole matrices per image.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import box_convert, box_iou

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FRAMES, SIZE, CLASSES, BATCH = 240, 96, 4, 8
GRIDS = {12: (0.15, 0.25), 6: (0.35, 0.5), 3: (0.7, 0.9)}
RATIOS = (1.0, 2.0, 0.5)


def default_boxes():
    """Return the default boxes as (center x, center y, width, height)."""
    boxes = []
    for grid, scales in GRIDS.items():
        centers = (torch.arange(grid) + 0.5) / grid
        y, x = torch.meshgrid(centers, centers, indexing="ij")
        shapes = torch.tensor([(scale * ratio**0.5, scale / ratio**0.5) for scale in scales for ratio in RATIOS])
        places = torch.stack([x, y], dim=-1)[:, :, None].expand(-1, -1, len(shapes), -1)
        boxes.append(torch.cat([places, shapes.expand(grid, grid, -1, -1)], dim=-1).reshape(-1, 4))
    return torch.cat(boxes)


class Matcher:
    """Give each default box the object that it overlaps most, and each object its best default box."""

    def __init__(self, defaults, threshold=0.5):
        self.defaults, self.threshold = defaults, threshold
        self.corners = box_convert(defaults, "cxcywh", "xyxy")

    def __call__(self, boxes, labels):
        overlaps = box_iou(boxes, self.corners)
        best, which = overlaps.max(0)
        favorites = overlaps.argmax(1)
        best[favorites] = 1.0
        which[favorites] = torch.arange(len(boxes))
        classes = torch.where(best >= self.threshold, labels[which], 0)
        goals = box_convert(boxes[which], "xyxy", "cxcywh")
        shifts = (goals[:, :2] - self.defaults[:, :2]) / self.defaults[:, 2:] / 0.1
        scales = (goals[:, 2:] / self.defaults[:, 2:]).log() / 0.2
        return classes, torch.cat([shifts, scales], dim=1)


def conv(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class SSD(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        per_cell = len(RATIOS) * 2
        self.stem = nn.Sequential(conv(3, 16, 2), conv(16, width, 2), conv(width, width), conv(width, 2 * width, 2))
        self.extras = nn.ModuleList([conv(2 * width, 2 * width), *(conv(2 * width, 2 * width, 2) for _ in range(2))])
        self.heads = nn.ModuleList(nn.Conv2d(2 * width, per_cell * (CLASSES + 4), 3, padding=1) for _ in GRIDS)

    def forward(self, images):
        x, outputs = self.stem(images), []
        for extra, head in zip(self.extras, self.heads, strict=True):
            x = extra(x)
            outputs.append(head(x).permute(0, 2, 3, 1).reshape(len(x), -1, CLASSES + 4))
        return torch.cat(outputs, dim=1).split([CLASSES, 4], dim=-1)


def multibox_loss(scores, offsets, classes, goals, ratio=3):
    """Return the loss of classes with the hardest negatives, and the loss of boxes."""
    is_object = classes > 0
    count = is_object.sum().clamp(min=1)
    entropy = F.cross_entropy(scores.transpose(1, 2), classes, reduction="none")
    negatives = entropy.detach().masked_fill(is_object, -1)
    rank = negatives.argsort(1, descending=True).argsort(1)
    is_hard = rank < ratio * is_object.sum(1, keepdim=True)
    localization = F.smooth_l1_loss(offsets[is_object], goals[is_object], reduction="sum")
    return entropy[is_object | is_hard].sum() / count, localization / count


def make_frames():
    """Return frames, and for each the corners and classes of its vehicles."""
    frames, objects = torch.rand(FRAMES, 3, SIZE, SIZE) * 0.4, []
    for frame in frames:
        count = int(torch.randint(1, 6, ()))
        corners = torch.rand(count, 2) * 0.6
        boxes = torch.cat([corners, corners + 0.1 + 0.3 * torch.rand(count, 2)], dim=1)
        labels = torch.randint(1, CLASSES, (count,))
        for (left, top, right, bottom), label in zip((boxes * SIZE).int().tolist(), labels.tolist(), strict=True):
            frame[label - 1, top:bottom, left:right] += 0.5
        objects.append((boxes, labels))
    return frames, objects


def main():
    diary, _ = begin()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    frames, objects = make_frames()
    matcher, model = Matcher(default_boxes()), SSD()
    targets = [matcher(*vehicles) for vehicles in objects]  # frames are not moved or cut: the matches stay
    classes, goals = (torch.stack(parts) for parts in zip(*targets, strict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3, momentum=0.9, weight_decay=5e-4)
    iteration = 0
    while True:
        for rows in torch.randperm(FRAMES).split(BATCH):
            scores, offsets = model(frames[rows])
            class_loss, box_loss = multibox_loss(scores, offsets, classes[rows], goals[rows])
            optimizer.zero_grad()
            (class_loss + box_loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            iteration += 1
            if iteration % 100 == 0:
                print(f"iter {iteration} || conf {class_loss.item():.3f} loc {box_loss.item():.3f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
