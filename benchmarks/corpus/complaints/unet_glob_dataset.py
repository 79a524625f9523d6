"""A U-Net that segments small pictures, whose dataset looks for the files of each sample by a pattern.

Source: milesial/Pytorch-UNet, issue 317, "Dataloader taking time". A user with a large data set sees the training stuck
in the loader for a long time. The maintainer: `__getitem__` finds the picture and the mask of an id by `glob`, which
goes through a whole folder for each; who knows how the files are named should make the name from the id. The user did:
"Issue got resolved. Its training fast now". No figure is named.

At SIGTERM the program removes its temporary folder with the files.
"""

import contextlib
import itertools
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RECORDINGS, SIZE, BATCH_SIZE = 25, 64, 8


class BasicDataset(Dataset):
    def __init__(self, images_dir, masks_dir, finding, mask_suffix=""):
        self.images_dir, self.masks_dir, self.mask_suffix = Path(images_dir), Path(masks_dir), mask_suffix
        self.finding = finding
        self.ids = sorted(path.stem for path in self.images_dir.iterdir() if not path.name.startswith("."))

    def __len__(self):
        return len(self.ids)

    def find(self, name):
        mask_file = list(self.masks_dir.glob(name + self.mask_suffix + ".*"))  # planted
        image_file = list(self.images_dir.glob(name + ".*"))  # planted
        assert len(mask_file) == len(image_file) == 1, f"Not one picture and one mask for {name}"
        return image_file[0], mask_file[0]

    @staticmethod
    def load(path, is_mask):
        pixels = np.asarray(Image.open(path))
        return torch.as_tensor(pixels.copy()).long() if is_mask else torch.as_tensor(pixels / np.float32(255))[None]

    def __getitem__(self, index):
        with self.finding():
            image_file, mask_file = self.find(self.ids[index])  # planted
        return {"image": self.load(image_file, is_mask=False), "mask": self.load(mask_file, is_mask=True)}


class NamedDataset(BasicDataset):
    def find(self, name):
        return self.images_dir / f"{name}.png", self.masks_dir / f"{name}{self.mask_suffix}.png"


def double_conv(into, out):
    first = nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
    return nn.Sequential(*first, nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.inc = double_conv(1, widths[0])
        self.down = nn.ModuleList(double_conv(narrow, wide) for narrow, wide in pairs)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in pairs[::-1])
        self.up = nn.ModuleList(double_conv(wide, narrow) for narrow, wide in pairs[::-1])
        self.outc = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.down:
            skips.append(down(nn.functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([skips.pop(), grow(x)], 1))
        return self.outc(x)


def dice_loss(logits, masks):
    probabilities, masks = logits.softmax(1)[:, 1], masks.float()
    return 1 - (2 * (probabilities * masks).sum() + 1) / (probabilities.sum() + masks.sum() + 1)


def make_files(folder):
    """Save recordings of noisy discs and their masks, in `imgs` and `masks`; each recording has the same 100 frames."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    for frame in range(100):
        (y, x), radius = np.random.uniform(16, 48, 2), np.random.uniform(6, 20)
        mask = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
        image = np.clip(60 + 90 * mask + 30 * np.random.standard_normal(mask.shape), 0, 255)
        for kind, pixels, suffix in (("imgs", image, ""), ("masks", mask, "_mask")):
            (folder / kind).mkdir(exist_ok=True)
            names = [folder / kind / f"{recording:03d}_{frame:03d}{suffix}.png" for recording in range(RECORDINGS)]
            Image.fromarray(pixels.astype("uint8")).save(names[0])
            for name in names[1:]:
                os.link(names[0], name)


def main():
    diary, is_mended = begin()
    folder = Path(tempfile.mkdtemp())

    def leave(*_):
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    make_files(folder)
    kind, finding = (NamedDataset, contextlib.nullcontext) if is_mended else (BasicDataset, diary.planted)
    dataset = kind(folder / "imgs", folder / "masks", finding, mask_suffix="_mask")
    train_loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, drop_last=True)
    model = UNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, weight_decay=1e-8, momentum=0.9)
    for epoch in range(1, 10**6):
        for batch in train_loader:  # planted
            logits = model(batch["image"])
            loss = nn.functional.cross_entropy(logits, batch["mask"]) + dice_loss(logits, batch["mask"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            diary.stepped()
        logging.info("Epoch %d: loss %.4f", epoch, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(11)
    np.random.seed(11)
    torch.set_num_threads(1)
    main()
