"""A bottom-up pose estimator after HigherHRNet, under Accelerate; each joint's target is drawn on a grid of its own."""

import sys
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

IMAGE_SIZE, HEATMAP_SIZE = 96, 48
NUM_JOINTS, SIGMA, BATCH_SIZE, PICTURES, PEOPLE = 17, 2.0, 8, 240, 4


class JointsDataset(Dataset):
    """Some people a picture: one blob of light a joint, of a color of its own, in noise."""

    flip_pairs = [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16)]

    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        rng = np.random.default_rng(0)
        self.joints = rng.uniform(8, IMAGE_SIZE - 8, (PICTURES, PEOPLE, NUM_JOINTS, 2)).astype(np.float32)
        noise = rng.random((PICTURES, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=np.float32)
        self.images = (60 * noise).astype(np.uint8)
        colors = rng.integers(90, 255, (NUM_JOINTS, 3, 1, 1), dtype=np.uint8)
        for image, people in zip(self.images, self.joints.astype(int), strict=True):
            for joint, (x, y) in enumerate(people.reshape(-1, 2)):
                image[:, y - 2 : y + 3, x - 2 : x + 3] = colors[joint % NUM_JOINTS]
        self.flipped = np.arange(NUM_JOINTS)
        for left, right in self.flip_pairs:
            self.flipped[[left, right]] = right, left
        self.rng = rng

    def __len__(self):
        return PICTURES

    def generate_heatmaps(self, people):
        heatmaps = np.zeros((NUM_JOINTS, HEATMAP_SIZE, HEATMAP_SIZE), np.float32)
        for joints in people:
            for joint, (x, y) in enumerate(joints):
                columns, rows = np.meshgrid(np.arange(HEATMAP_SIZE), np.arange(HEATMAP_SIZE))  # planted
                squared = (columns - x) ** 2 + (rows - y) ** 2  # planted
                heatmaps[joint] = np.maximum(heatmaps[joint], np.exp(-squared / (2 * SIGMA**2)))  # planted
        return heatmaps

    def generate_heatmaps_separably(self, people):
        cells = np.arange(HEATMAP_SIZE, dtype=np.float32)
        lines = np.exp(-((cells - people[..., None]) ** 2) / np.float32(2 * SIGMA**2))
        return (lines[:, :, 1, :, None] * lines[:, :, 0, None, :]).max(0)

    def __getitem__(self, picture):
        image, people = self.images[picture], self.joints[picture]
        if self.rng.random() < 0.5:
            image = image[:, :, ::-1].copy()
            people = people[:, self.flipped] * np.float32([-1, 1]) + np.float32([IMAGE_SIZE - 1, 0])
        people = people * np.float32(HEATMAP_SIZE / IMAGE_SIZE)
        if self.is_mended:
            heatmaps = self.generate_heatmaps_separably(people)
        else:
            with self.diary.planted():
                heatmaps = self.generate_heatmaps(people)  # planted
        return torch.from_numpy(image), torch.from_numpy(heatmaps)


def block(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class PoseNet(nn.Module):
    """Two resolutions side by side that tell each other what they saw."""

    def __init__(self, width=20):
        super().__init__()
        self.stem = block(3, width, 2)
        self.fine = nn.ModuleList(block(width, width) for _ in range(2))
        self.coarse = nn.ModuleList([block(width, 2 * width, 2), block(2 * width, 2 * width)])
        self.up = nn.Sequential(nn.Conv2d(2 * width, width, 1), nn.Upsample(scale_factor=2, mode="nearest"))
        self.final = nn.Conv2d(width, NUM_JOINTS, 1)

    def forward(self, x):
        x = self.stem(x)
        coarse = self.coarse[1](self.coarse[0](x))
        fine = self.fine[1](self.fine[0](x) + self.up(coarse))
        return self.final(fine)


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model, criterion = PoseNet(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(JointsDataset(diary, is_mended), BATCH_SIZE, shuffle=True, drop_last=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [170 * 50, 200 * 50], 0.1)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step = 0
    for epoch in range(1_000_000):
        for images, heatmaps in loader:  # planted
            output = model(images.float().div_(255))
            loss = criterion(output, heatmaps)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            diary.stepped()
            if step % 100 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
