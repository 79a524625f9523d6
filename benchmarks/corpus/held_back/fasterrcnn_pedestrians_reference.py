"""A Faster R-CNN on pictures of pedestrians, after torchvision's reference for detection. Nothing is planted."""

import datetime
import sys
import time
from collections import defaultdict, deque
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection.faster_rcnn import FasterRCNN, FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, PICTURES, BATCH_SIZE = 128, 120, 2


class PedestrianDataset(Dataset):
    """Upright bars of cloth and a head, before a street that gets lighter upwards."""

    def __init__(self, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.street = torch.linspace(0.7, 0.2, SIDE).view(1, SIDE, 1).expand(3, SIDE, SIDE)
        self.pictures = [self.draw(i) for i in range(PICTURES)]

    def draw(self, index):
        image = self.street + 0.04 * torch.randn(3, SIDE, SIDE, generator=self.generator)
        boxes = []
        for _ in range(int(torch.randint(1, 5, (), generator=self.generator))):
            height = int(torch.randint(30, 70, (), generator=self.generator))
            left, top = torch.randint(0, SIDE - 70, (2,), generator=self.generator).tolist()
            cloth = torch.rand(3, 1, 1, generator=self.generator)
            width = height // 3
            image[:, top + height // 5 : top + height, left : left + width] = cloth
            image[:, top : top + height // 5, left + width // 4 : left + 3 * width // 4] = 0.85
            boxes.append([left, top, left + width, top + height])
        boxes = torch.tensor(boxes, dtype=torch.float32)
        return image, {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.int64), "image_id": index}

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        image, target = self.pictures[index]
        if torch.rand(()) < 0.5:
            image, boxes = image.flip(-1), target["boxes"].clone()
            boxes[:, [0, 2]] = SIDE - boxes[:, [2, 0]]
            target = {**target, "boxes": boxes}
        return image, target


class Backbone(nn.Sequential):
    out_channels = 64

    def __init__(self):
        layers, inputs = [], 3
        for outputs in (24, 48, 64, 64):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            inputs = outputs
        super().__init__(*layers)


class SmoothedValue:
    """The median and the mean of the last values of a series."""

    def __init__(self, window_size=20):
        self.deque = deque(maxlen=window_size)

    def update(self, value):
        self.deque.append(value)

    def __str__(self):
        values = torch.tensor(list(self.deque))
        return f"{values.median().item():.4f} ({values.mean().item():.4f})"


class MetricLogger:
    def __init__(self, delimiter="  "):
        self.meters = defaultdict(SmoothedValue)
        self.delimiter = delimiter

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(float(value))

    def __str__(self):
        return self.delimiter.join(f"{name}: {meter}" for name, meter in self.meters.items())

    def log_every(self, iterable, print_freq, header):
        begun = time.time()
        for i, item in enumerate(iterable):
            yield item
            if i % print_freq == 0:
                per_item = (time.time() - begun) / (i + 1)
                eta = datetime.timedelta(seconds=int(per_item * (len(iterable) - i)))
                print(f"{header} [{i}/{len(iterable)}] eta: {eta} {self}", flush=True)


def collate_fn(batch):
    return tuple(zip(*batch, strict=True))


def create_model():
    anchors = AnchorGenerator(sizes=((16, 32, 64),), aspect_ratios=((1.0, 2.0, 3.0),))
    return FasterRCNN(
        Backbone(),
        rpn_anchor_generator=anchors,
        box_roi_pool=MultiScaleRoIAlign(["0"], output_size=5, sampling_ratio=2),
        box_head=TwoMLPHead(Backbone.out_channels * 5 * 5, 192),
        box_predictor=FastRCNNPredictor(192, num_classes=2),
        min_size=SIDE,
        max_size=SIDE,
        rpn_pre_nms_top_n_train=300,
        rpn_post_nms_top_n_train=100,
        rpn_batch_size_per_image=64,
        box_batch_size_per_image=48,
    )


def train_one_epoch(model, optimizer, loader, epoch, warmup, diary):
    model.train()
    metric_logger = MetricLogger()
    for images, targets in metric_logger.log_every(loader, 30, f"Epoch: [{epoch}]"):
        loss_dict = model(list(images), list(targets))
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        warmup.step()
        metric_logger.update(loss=losses.detach(), **{name: loss.detach() for name, loss in loss_dict.items()})
        diary.stepped()


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(PedestrianDataset(), BATCH_SIZE, shuffle=True, drop_last=True, collate_fn=collate_fn)
    model = create_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, total_iters=200)
    for epoch in range(1_000_000):
        train_one_epoch(model, optimizer, loader, epoch, warmup, diary)


if __name__ == "__main__":
    main()
