"""A detector of containers in cargo bays, in the style of detectron2: records, a mapper, a trainer with hooks.

The mapper copies a record with all its polygons deeply, though only the image and the boxes are used.
"""

import copy
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, GRID, KINDS, RECORDS = 96, 12, 6, 240


def make_records(rng):
    images = (255 * rng.random((RECORDS, 3, SIDE, SIDE), dtype=np.float32)).astype(np.uint8)
    records = []
    for number in range(RECORDS):
        corners = rng.uniform(0, SIDE - 24, (24, 2))
        boxes = np.concatenate([corners, corners + rng.uniform(8, 24, (24, 2))], axis=1).astype(np.float32)
        outlines = [
            [[float(x) for x in rng.uniform(box[0], box[2], 48)], [float(y) for y in rng.uniform(box[1], box[3], 48)]]
            for box in boxes
        ]
        records.append(
            {
                "file_name": f"bay_{number:05d}.jpg",
                "height": SIDE,
                "width": SIDE,
                "image": torch.from_numpy(images[number].copy()),
                "boxes": torch.from_numpy(boxes),
                "classes": torch.from_numpy(rng.integers(0, KINDS, 24)),
                "annotations": [{"segmentation": one, "iscrowd": 0} for one in outlines],
            }
        )
    return records


class DatasetMapper:
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended

    def own_record(self, record):
        """Return a record that may be changed, without its polygons."""
        if self.is_mended:
            return {key: value for key, value in record.items() if key != "annotations"}
        with self.diary.planted():
            record = copy.deepcopy(record)  # planted
            record.pop("annotations")
        return record

    def __call__(self, record):
        record = self.own_record(record)  # planted
        image, boxes = record["image"], record["boxes"]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
            boxes = torch.stack([SIDE - boxes[:, 2], boxes[:, 1], SIDE - boxes[:, 0], boxes[:, 3]], dim=1)
        record["image"], record["boxes"] = image, boxes
        return record


class MappedDataset(Dataset):
    def __init__(self, records, mapper):
        self.records, self.mapper = records, mapper

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.mapper(self.records[index])  # planted


class GridDetector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (width, 2 * width, 3 * width):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU(inplace=True)]
            inputs = outputs
        layers += [nn.Conv2d(inputs, inputs, 3, 1, 1), nn.SiLU(inplace=True)]
        self.backbone = nn.Sequential(*layers)
        self.head = nn.Conv2d(inputs, 5 + KINDS, 1)

    def forward(self, records):
        images = torch.stack([record["image"] for record in records]).float() / 255 - 0.5
        output = self.head(self.backbone(images))
        boxes = torch.stack([record["boxes"] for record in records])
        kinds = torch.stack([record["classes"] for record in records])
        centers = (boxes[..., :2] + boxes[..., 2:]) / 2
        cells = (centers * GRID / SIDE).long().clamp(0, GRID - 1)
        places = cells[..., 1] * GRID + cells[..., 0]
        flat = output.flatten(2)
        found = flat.gather(2, places.unsqueeze(1).expand(-1, flat.shape[1], -1))
        wanted = torch.zeros(len(records), GRID * GRID).scatter_(1, places, 1.0)
        sizes = (boxes[..., 2:] - boxes[..., :2]) / SIDE
        shapes = torch.cat([centers / SIDE, sizes], dim=-1).transpose(1, 2)
        return {
            "loss_object": F.binary_cross_entropy_with_logits(flat[:, 0], wanted),
            "loss_box": F.smooth_l1_loss(found[:, 1:5], shapes),
            "loss_class": F.cross_entropy(found[:, 5:], kinds),
        }


class PeriodicWriter:
    def __init__(self, period):
        self.period, self.begun = period, time.perf_counter()

    def after_step(self, trainer):
        if trainer.iter % self.period == 0:
            losses = "  ".join(f"{name}: {loss.item():.3f}" for name, loss in trainer.loss_dict.items())
            print(f"iter: {trainer.iter}  {losses}  time: {time.perf_counter() - self.begun:.0f}", flush=True)


class SimpleTrainer:
    def __init__(self, model, loader, optimizer, hooks, diary):
        self.model, self.loader, self.optimizer, self.hooks, self.diary = model, loader, optimizer, hooks, diary
        self.iter, self.loss_dict = 0, {}

    def run_step(self, records):
        self.loss_dict = self.model(records)
        losses = sum(self.loss_dict.values())
        self.optimizer.zero_grad()
        losses.backward()
        self.optimizer.step()

    def train(self):
        while True:
            for records in self.loader:  # planted
                self.run_step(records)
                self.iter += 1
                for hook in self.hooks:
                    hook.after_step(self)
                self.diary.stepped()


def main():
    diary, is_mended = begin()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dataset = MappedDataset(make_records(np.random.default_rng(7)), DatasetMapper(diary, is_mended))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, collate_fn=list)
    model = GridDetector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    SimpleTrainer(model, loader, optimizer, [PeriodicWriter(200)], diary).train()


if __name__ == "__main__":
    main()
