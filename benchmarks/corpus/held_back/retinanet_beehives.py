"""A one-stage detector of hives on aerial tiles, in the style of RetinaNet's ports: pyramid and focal loss."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import box_iou, sigmoid_focal_loss

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE, CLASSES = 160, 3


class Anchors:
    """Nine boxes at each place of each level of the pyramid."""

    def __init__(self, keep):
        self.strides = (8, 16, 32)
        self.ratios = (0.5, 1.0, 2.0)
        self.scales = (1.0, 2 ** (1 / 3), 2 ** (2 / 3))
        self.keep, self.cache = keep, {}

    def make(self, height, width):
        boxes = []
        for stride in self.strides:
            for y in range(height // stride):  # planted
                for x in range(width // stride):  # planted
                    cx, cy = (x + 0.5) * stride, (y + 0.5) * stride
                    for ratio in self.ratios:
                        for scale in self.scales:
                            w = 3 * stride * scale / ratio**0.5
                            h = w * ratio
                            boxes.append([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])  # planted
        return torch.tensor(boxes)  # planted

    def __call__(self, image):
        height, width = image.shape[-2:]
        if not self.keep:
            return self.make(height, width)  # planted
        if (height, width) not in self.cache:
            self.cache[height, width] = self.make(height, width)
        return self.cache[height, width]


def block(c1, c2):
    return nn.Sequential(nn.Conv2d(c1, c2, 3, 2, 1, bias=False), nn.BatchNorm2d(c2), nn.ReLU(inplace=True))


class RetinaNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Sequential(block(3, 12), block(12, 24))
        self.c3, self.c4, self.c5 = block(24, 48), block(48, 64), block(64, 96)
        self.lateral = nn.ModuleList([nn.Conv2d(c, width, 1) for c in (48, 64, 96)])
        self.smooth = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])
        self.cls_head, self.box_head = self.head(width, 9 * CLASSES), self.head(width, 9 * 4)
        nn.init.constant_(self.cls_head[-1].bias, -4.6)

    @staticmethod
    def head(width, out):
        layers = [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.Conv2d(width, out, 3, padding=1))

    def forward(self, x):
        c3 = self.c3(self.stem(x))
        c4 = self.c4(c3)
        p5 = self.lateral[2](self.c5(c4))
        p4 = self.lateral[1](c4) + F.interpolate(p5, scale_factor=2.0)
        p3 = self.lateral[0](c3) + F.interpolate(p4, scale_factor=2.0)
        levels = [smooth(p) for smooth, p in zip(self.smooth, (p3, p4, p5), strict=True)]
        cls = [self.cls_head(p).permute(0, 2, 3, 1).reshape(len(x), -1, CLASSES) for p in levels]
        box = [self.box_head(p).permute(0, 2, 3, 1).reshape(len(x), -1, 4) for p in levels]
        return torch.cat(cls, 1), torch.cat(box, 1)


def encode(boxes, anchors):
    wh = anchors[:, 2:] - anchors[:, :2]
    center = (boxes[:, :2] + boxes[:, 2:] - anchors[:, :2] - anchors[:, 2:]) / 2
    return torch.cat([center / wh / 0.1, ((boxes[:, 2:] - boxes[:, :2]) / wh).log() / 0.2], 1)


class FocalLoss(nn.Module):
    def forward(self, cls, box, anchors, annotations):
        total = 0.0
        for i, (boxes, labels) in enumerate(annotations):
            iou, match = box_iou(anchors, boxes).max(1)
            positive = (iou > 0.5).nonzero().squeeze(1)
            counted = (iou < 0.4) | (iou > 0.5)
            target = torch.zeros_like(cls[i])
            target[positive, labels[match[positive]]] = 1
            number = max(len(positive), 1)
            total = total + sigmoid_focal_loss(cls[i][counted], target[counted], reduction="sum") / number
            wanted = encode(boxes[match[positive]], anchors[positive])
            total = total + F.smooth_l1_loss(box[i][positive], wanted, reduction="sum") / number
        return total / len(annotations)


def make_tiles(number):
    images, annotations = torch.rand(number, 3, SIZE, SIZE) * 0.3, []
    for image in images:
        corner, wh = torch.rand(4, 2) * (SIZE - 60), torch.rand(4, 2) * 40 + 18
        labels = torch.randint(CLASSES, (4,))
        for (x, y), (w, h), label in zip(corner.long().tolist(), wh.long().tolist(), labels.tolist(), strict=True):
            image[label, y : y + h, x : x + w] += 0.6
        annotations.append((torch.cat([corner, corner + wh], 1), labels))
    return images, annotations


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, annotations = make_tiles(64)
    model, criterion, anchor_maker = RetinaNet(), FocalLoss(), Anchors(keep=is_mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    for epoch in range(1_000_000):
        running = 0.0
        for chosen in torch.randperm(len(images)).split(2):
            batch, wanted = images[chosen], [annotations[i] for i in chosen.tolist()]
            cls, box = model(batch)
            with diary.planted():
                anchors = anchor_maker(batch)  # planted
            loss = criterion(cls, box, anchors, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            running += loss.detach()
            diary.stepped()
        if epoch % 10 == 0:
            print(f"Epoch {epoch} | running loss {running.item() / 32:.5f}", flush=True)


if __name__ == "__main__":
    main()
