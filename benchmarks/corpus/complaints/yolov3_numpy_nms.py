"""A YOLOv3-like detector that is trained on drawn shapes and evaluated on held-out pictures after each epoch.

Source: Peterisfar/YOLOV3, issue 19, on why the validation after each epoch is so slow (in Chinese). One user timed the
parts of it: the NMS of the project takes 1.2 s and more, where the model takes 0.02 to 0.1 s. It is a `while` loop over
NumPy arrays for each class, with one iteration for each box kept, and a model that has learnt little gives many
boxes. Another implementation of NMS takes less than 0.01 s, which is the fix: here `torchvision.ops.batched_nms`.
"""

import contextlib
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.ops import batched_nms, box_iou

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ANCHORS, STRIDE, CLASSES = [[10.0, 10.0], [20.0, 14.0], [14.0, 20.0]], 8, 20
IMG_SIZE, CONF_THRESH, NMS_THRESH = 128, 0.01, 0.5


def nms(bboxes, score_threshold, iou_threshold):
    """Suppress overlapping boxes of a class; boxes are rows of x1, y1, x2, y2, score, class."""
    best_bboxes = []
    for cls in set(bboxes[:, 5].astype(np.int32)):  # planted
        cls_bboxes = bboxes[bboxes[:, 5].astype(np.int32) == cls]
        while len(cls_bboxes) > 0:  # planted
            max_ind = np.argmax(cls_bboxes[:, 4])  # planted
            best_bboxes.append(cls_bboxes[max_ind])
            cls_bboxes = np.concatenate([cls_bboxes[:max_ind], cls_bboxes[max_ind + 1 :]])  # planted
            iou = iou_numpy(best_bboxes[-1], cls_bboxes)  # planted
            cls_bboxes[:, 4] = cls_bboxes[:, 4] * np.where(iou > iou_threshold, 0.0, 1.0)  # planted
            cls_bboxes = cls_bboxes[cls_bboxes[:, 4] > score_threshold]  # planted
    return np.array(best_bboxes, "float32").reshape(-1, 6)


def iou_numpy(box, boxes):
    inter = np.maximum(np.minimum(box[2:4], boxes[:, 2:4]) - np.maximum(box[:2], boxes[:, :2]), 0.0).prod(1)  # planted
    return inter / ((box[2:4] - box[:2]).prod() + (boxes[:, 2:4] - boxes[:, :2]).prod(1) - inter + 1e-9)  # planted


def nms_torchvision(bboxes, score_threshold, iou_threshold):
    rows = torch.from_numpy(bboxes[bboxes[:, 4] > score_threshold])
    return rows[batched_nms(rows[:, :4], rows[:, 4], rows[:, 5].long(), iou_threshold)].numpy()


def draw(palette):
    """Return a picture with up to eight bright rectangles, and their rows of x1, y1, x2, y2, class (the colour)."""
    image, boxes = 0.1 * np.random.rand(IMG_SIZE, IMG_SIZE, 3).astype("float32"), []
    for _ in range(np.random.randint(1, 9)):
        (x, y), (w, h), cls = np.random.randint(0, IMG_SIZE - 24, 2), np.random.randint(8, 24, 2), np.random.randint(20)
        image[y : y + h, x : x + w] = palette[cls]
        boxes.append([x, y, x + w, y + h, cls])
    return torch.from_numpy(image).permute(2, 0, 1), np.array(boxes, "float32")


def make_target(boxes):
    """Return for each anchor and cell: x, y in the cell, logarithms of w and h in anchors, objectness, class."""
    anchors, target = np.array(ANCHORS), np.zeros((len(ANCHORS), IMG_SIZE // STRIDE, IMG_SIZE // STRIDE, 6), "float32")
    for x1, y1, x2, y2, cls in boxes:
        cx, cy, size = (x1 + x2) / 2 / STRIDE, (y1 + y2) / 2 / STRIDE, np.array([x2 - x1, y2 - y1])
        best = np.argmin(np.abs(np.log(size / anchors)).sum(1))
        target[best, int(cy), int(cx)] = [cx % 1, cy % 1, *np.log(size / anchors[best]), 1, cls]
    return torch.from_numpy(target)


class YOLO(nn.Module):
    def __init__(self):
        super().__init__()
        layers, before = [], 3
        for width, stride in ((16, 2), (32, 2), (64, 2), (64, 1), (64, 1)):
            layers += [nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.LeakyReLU(0.1)]
            before = width
        self.layers = nn.Sequential(*layers, nn.Conv2d(before, len(ANCHORS) * (5 + CLASSES), 1))

    def forward(self, images):
        out = self.layers(images)
        return out.view(len(out), len(ANCHORS), -1, *out.shape[2:]).permute(0, 1, 3, 4, 2)

    def decode(self, out):
        """Return the boxes of all cells and anchors as rows of x1, y1, x2, y2, objectness, classes."""
        rows, columns = torch.meshgrid(torch.arange(out.shape[2]), torch.arange(out.shape[3]), indexing="ij")
        centre = (out[..., :2].sigmoid() + torch.stack([columns, rows], -1)) * STRIDE
        half = out[..., 2:4].clamp(max=3).exp() * torch.tensor(ANCHORS)[:, None, None] / 2
        return torch.cat([centre - half, centre + half, out[..., 4:].sigmoid()], -1).flatten(1, 3)


def yolo_loss(out, target):
    found, wanted = out[target[..., 4] > 0], target[target[..., 4] > 0]
    binary = nn.functional.binary_cross_entropy_with_logits
    coordinates = binary(found[:, :2], wanted[:, :2]) + nn.functional.mse_loss(found[:, 2:4], wanted[:, 2:4])
    classes = nn.functional.one_hot(wanted[:, 5].long(), CLASSES).float()
    return coordinates + binary(out[..., 4], target[..., 4]) + binary(found[:, 5:], classes)


@torch.no_grad()
def evaluate(model, drawn, suppress, suppressing):
    """Return the share of the drawn rectangles that a box of their class covers by half."""
    model.eval()
    found = []
    predictions = model.decode(model(torch.stack([image for image, _ in drawn])))
    for prediction, boxes in zip(predictions, (torch.from_numpy(boxes) for _, boxes in drawn), strict=True):
        scores, classes = (prediction[:, 4:5] * prediction[:, 5:]).max(1)
        bboxes = torch.cat([prediction[:, :4], scores[:, None], classes[:, None]], 1)[scores > CONF_THRESH].numpy()
        with suppressing():
            bboxes = torch.from_numpy(suppress(bboxes, CONF_THRESH, NMS_THRESH))  # planted
        found += ((box_iou(boxes[:, :4], bboxes[:, :4]) > 0.5) & (boxes[:, 4:] == bboxes[:, 5])).any(1).tolist()
    model.train()
    return sum(found) / len(found)


def main():
    diary, is_mended = begin()
    palette = np.random.uniform(0.3, 1, (CLASSES, 3)).astype("float32")
    pictures = [(image, make_target(boxes)) for image, boxes in (draw(palette) for _ in range(768))]
    test_pictures = [draw(palette) for _ in range(64)]
    loader = DataLoader(pictures, batch_size=16, shuffle=True, drop_last=True)
    suppression = (nms_torchvision, contextlib.nullcontext) if is_mended else (nms, diary.planted)
    model = YOLO()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(10**6):
        for images, targets in loader:
            loss = yolo_loss(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        recall = evaluate(model, test_pictures, *suppression)  # planted
        print(f"Epoch {epoch}: loss {loss.item():.4f}, recall {recall:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(9)
    np.random.seed(9)
    torch.set_num_threads(1)
    main()
