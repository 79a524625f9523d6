"""Segmentation with a small U-Net, in epochs, with the mean intersection over union beside the loss."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NUM_CLASSES, SIZE, BATCH_SIZE, METRIC_INTERVAL = 6, 64, 6, 200


class Tiles(Dataset):
    """Images with their masks, in memory."""

    def __init__(self, count):
        self.masks = torch.randint(NUM_CLASSES, (count, 1, SIZE // 16, SIZE // 16)).float()
        self.masks = nn.functional.interpolate(self.masks, size=SIZE).squeeze(1).long()
        self.images = self.masks.unsqueeze(1) / NUM_CLASSES + 0.3 * torch.randn(count, 3, SIZE, SIZE)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2 = double_conv(3, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge1 = double_conv(2 * width, width)
        self.pool, self.out = nn.MaxPool2d(2), nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        x = self.up2(self.bottom(self.pool(second)))
        x = self.up1(self.merge2(torch.cat([x, second], dim=1)))
        return self.out(self.merge1(torch.cat([x, first], dim=1)))


class IoUMeter:
    def __init__(self):
        self.hist = np.zeros((NUM_CLASSES, NUM_CLASSES), dtype=np.int64)

    def update(self, logits, masks):
        predicted = logits.argmax(1).numpy().ravel()
        for truth, guess in zip(masks.numpy().ravel(), predicted, strict=True):  # planted
            self.hist[truth, guess] += 1  # planted

    def mean_iou(self):
        overlap = np.diag(self.hist)
        union = self.hist.sum(0) + self.hist.sum(1) - overlap
        return float((overlap / np.maximum(union, 1)).mean())


def train_one_epoch(model, loader, optimizer, diary, is_mended):
    meter, running = IoUMeter(), torch.zeros(())
    criterion = nn.CrossEntropyLoss()
    for index, (images, masks) in enumerate(loader):
        optimizer.zero_grad()
        logits = model(images)
        loss = criterion(logits, masks)
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if is_mended:
            if index % METRIC_INTERVAL == 0:
                meter.update(logits.detach(), masks)
        else:
            with diary.planted():
                meter.update(logits.detach(), masks)  # planted
        diary.stepped()
    return running.item() / len(loader), meter.mean_iou()


def main():
    diary, is_mended = begin()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    loader = DataLoader(Tiles(360), batch_size=BATCH_SIZE, shuffle=True)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    epoch = 0
    while True:
        loss, iou = train_one_epoch(model, loader, optimizer, diary, is_mended)
        epoch += 1
        print(f"epoch {epoch}: loss {loss:.4f} mIoU {iou:.3f}", flush=True)


if __name__ == "__main__":
    main()
