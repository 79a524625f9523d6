"""Street scenes segmented by a small FPN, in the style of segmentation_models.pytorch with its own epoch runner."""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SCENES, HEIGHT, WIDTH = 48, 96, 128
PALETTE = {
    "sky": (128, 128, 128), "building": (128, 0, 0), "pole": (192, 192, 128), "road": (128, 64, 128),
    "pavement": (60, 40, 222), "tree": (128, 128, 0), "sign": (192, 128, 128), "fence": (64, 64, 128),
    "car": (64, 0, 128), "pedestrian": (64, 64, 0), "bicyclist": (0, 128, 192), "marking": (192, 0, 64),
    "bridge": (0, 128, 64), "wall": (64, 192, 0), "train": (192, 64, 128), "truck": (192, 128, 192),
    "animal": (64, 128, 64), "void": (0, 0, 0),
}  # fmt: skip


def draw_scenes(rng):
    """Return photos and their masks, painted in the colors of the palette, as an annotation tool writes them."""
    colors = np.array(list(PALETTE.values()), dtype=np.uint8)
    blocks = rng.integers(len(colors), size=(SCENES, HEIGHT // 8, WIDTH // 8))
    masks = colors[blocks.repeat(8, axis=1).repeat(8, axis=2)]
    photos = masks // 2 + rng.integers(0, 90, size=masks.shape, dtype=np.uint8)
    return photos, masks


def classes_of(mask):
    """Return the class of each pixel of a painted mask."""
    classes = np.zeros(mask.shape[:2], dtype=np.int64)
    for number, color in enumerate(PALETTE.values()):
        classes[np.all(mask == np.array(color), axis=-1)] = number  # planted
    return classes


class SceneDataset(Dataset):
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.photos, self.masks = draw_scenes(np.random.default_rng(3))
        if is_mended:
            self.masks = np.stack([classes_of(mask) for mask in self.masks])

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        photo, mask = self.photos[index], self.masks[index]
        if not self.is_mended:
            with self.diary.planted():
                mask = classes_of(mask)  # planted
        image = torch.from_numpy(photo.transpose(2, 0, 1).astype(np.float32) / 255)
        target = torch.from_numpy(mask)
        if torch.rand(()) < 0.5:
            image, target = image.flip(2), target.flip(1)
        return image, target


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class FPN(nn.Module):
    def __init__(self, widths=(24, 32, 48, 64), pyramid=32):
        super().__init__()
        ins = (3, *widths[:-1])
        self.stages = nn.ModuleList(
            nn.Sequential(block(i, o, 2), block(o, o, 1)) for i, o in zip(ins, widths, strict=True)
        )
        self.laterals = nn.ModuleList(nn.Conv2d(width, pyramid, 1) for width in widths)
        self.smooth = block(pyramid, pyramid, 1)
        self.head = nn.Conv2d(pyramid, len(PALETTE), 1)

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        top = self.laterals[-1](features[-1])
        for lateral, feature in zip(self.laterals[-2::-1], features[-2::-1], strict=True):
            top = F.interpolate(top, scale_factor=2) + lateral(feature)
        return F.interpolate(self.head(self.smooth(top)), scale_factor=2, mode="bilinear", align_corners=False)


class TrainEpoch:
    def __init__(self, model, optimizer, diary):
        self.model, self.optimizer, self.diary = model, optimizer, diary
        self.logs = defaultdict(float)
        self.weight = torch.ones(len(PALETTE))
        self.weight[-1] = 0.1

    def run(self, loader):
        self.model.train()
        for image, target in loader:  # planted
            logits = self.model(image)
            loss = F.cross_entropy(logits, target, weight=self.weight)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.diary.stepped()
        self.logs["cross_entropy"] = loss.item()
        return self.logs


def main():
    diary, is_mended = begin()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader = DataLoader(SceneDataset(diary, is_mended), batch_size=8, shuffle=True)
    model = FPN()
    runner = TrainEpoch(model, torch.optim.AdamW(model.parameters(), lr=5e-4), diary)
    epoch = 0
    while True:
        logs = runner.run(loader)
        epoch += 1
        if epoch % 10 == 0:
            print(f"Epoch {epoch}: " + ", ".join(f"{key} {value:.4f}" for key, value in logs.items()), flush=True)


if __name__ == "__main__":
    main()
