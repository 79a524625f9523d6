"""An anchor detector in the style of the early PyTorch YOLO ports: boxes are assigned one by one, in Python."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Hyperparameters:
    classes: int = 12
    image_size: int = 128
    stride: int = 8
    batch_size: int = 8
    lr: float = 2e-3
    anchors: tuple = ((1.2, 1.6), (2.5, 2.0), (4.0, 4.5))


class ConvLeaky(nn.Sequential):
    def __init__(self, c_in, c_out, k=3, s=1):
        super().__init__(
            nn.Conv2d(c_in, c_out, k, s, k // 2, bias=False), nn.BatchNorm2d(c_out), nn.LeakyReLU(0.1, inplace=True)
        )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(ConvLeaky(channels, channels // 2, 1), ConvLeaky(channels // 2, channels))

    def forward(self, x):
        return x + self.body(x)


class TinyDarknet(nn.Module):
    def __init__(self, hyp):
        super().__init__()
        layers, channels = [ConvLeaky(3, 12, s=2)], 12
        for _ in range(2):
            layers += [ConvLeaky(channels, channels * 2, s=2), Residual(channels * 2)]
            channels *= 2
        self.trunk = nn.Sequential(*layers, Residual(channels))
        self.head = nn.Conv2d(channels, len(hyp.anchors) * (5 + hyp.classes), 1)

    def forward(self, images):
        out = self.head(self.trunk(images))
        b, _, h, w = out.shape
        return out.view(b, 3, -1, h, w).permute(0, 1, 3, 4, 2)


def wh_iou(wh, anchors):
    inter = torch.minimum(wh, anchors).prod(-1)
    return inter / (wh.prod(-1) + anchors.prod(-1) - inter)


class YoloLoss:
    def __init__(self, hyp, is_mended):
        self.hyp, self.anchors = hyp, torch.tensor(hyp.anchors)
        self.assign = self.assign_all if is_mended else self.assign_one_by_one
        self.bce, self.mse = nn.BCEWithLogitsLoss(), nn.MSELoss()

    def assign_one_by_one(self, targets, grid):
        found, offsets = [], []
        for row in targets:
            image, label = int(row[0]), int(row[1])
            x, y, w, h = row[2] * grid, row[3] * grid, row[4] * grid, row[5] * grid
            best, best_iou = 0, -1.0
            for number, anchor in enumerate(self.anchors):
                iou = float(wh_iou(torch.stack([w, h]), anchor))  # planted
                if iou > best_iou:
                    best, best_iou = number, iou
            i, j = int(x), int(y)
            found.append((image, best, j, i, label))
            offsets.append(torch.stack([x - i, y - j, *torch.log(torch.stack([w, h]) / self.anchors[best])]))
        return torch.tensor(found).unbind(1), torch.stack(offsets)

    def assign_all(self, targets, grid):
        boxes = targets[:, 2:] * grid
        best = wh_iou(boxes[:, None, 2:], self.anchors[None]).argmax(1)
        cell = boxes[:, :2].long()
        offsets = torch.cat([boxes[:, :2] - cell, torch.log(boxes[:, 2:] / self.anchors[best])], 1)
        return (targets[:, 0].long(), best, cell[:, 1], cell[:, 0], targets[:, 1].long()), offsets

    def __call__(self, predictions, assigned):
        (image, anchor, j, i, label), offsets = assigned
        matched = predictions[image, anchor, j, i]
        objectness = torch.zeros_like(predictions[..., 4])
        objectness[image, anchor, j, i] = 1.0
        xy = self.mse(matched[:, :2].sigmoid(), offsets[:, :2])
        wh = self.mse(matched[:, 2:4], offsets[:, 2:])
        labels = nn.functional.one_hot(label, self.hyp.classes).float()
        return xy + 0.5 * wh + self.bce(predictions[..., 4], objectness) + self.bce(matched[:, 5:], labels)


def load_batches(hyp, count=12):
    for _ in range(count):
        rows = []
        for image in range(hyp.batch_size):
            boxes = torch.rand(torch.randint(8, 15, ()).item(), 4)
            boxes[:, 2:] = boxes[:, 2:] * 0.25 + 0.04
            boxes[:, :2] *= 0.99
            head = torch.stack([torch.full((len(boxes),), float(image)), torch.randint(hyp.classes, (len(boxes),))], 1)
            rows.append(torch.cat([head, boxes], 1))
        yield torch.rand(hyp.batch_size, 3, hyp.image_size, hyp.image_size), torch.cat(rows)


def train(hyp, diary, is_mended):
    model, compute_loss = TinyDarknet(hyp), YoloLoss(hyp, is_mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=hyp.lr)
    batches = list(load_batches(hyp))
    for epoch in range(10**6):
        running = torch.zeros(())
        for images, targets in batches:
            predictions = model(images)
            with diary.planted():
                assigned = compute_loss.assign(targets, predictions.shape[2])  # planted
            loss = compute_loss(predictions, assigned)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            diary.stepped()
        if epoch % 10 == 0:
            print(f"Epoch {epoch}: loss {running.item() / len(batches):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    train(Hyperparameters(), *begin())
