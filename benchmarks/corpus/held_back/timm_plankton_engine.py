"""A classifier of plankton photos in the style of timm's train.py: one function an epoch, meters, cosine steps."""

import sys
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, dispatch_clip_grad
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PHOTOS, CLASSES, PHOTO_SIZE, INPUT_SIZE = 160, 14, (440, 330), 72
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_photos(rng):
    """Return blurry specks on water as PIL images, with their classes."""
    photos, labels = [], rng.integers(CLASSES, size=PHOTOS)
    for label in labels:
        coarse = rng.integers(0, 255, size=(3 + label, 4 + label, 3), dtype=np.uint8)
        photos.append(Image.fromarray(coarse).resize(PHOTO_SIZE, Image.Resampling.BICUBIC))
    return photos, labels.tolist()


class TrainTransform:
    """What timm's create_transform makes for training, by hand."""

    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
        self.crop = transforms.RandomResizedCrop(INPUT_SIZE, scale=(0.35, 1.0))
        self.flip = transforms.RandomHorizontalFlip()
        self.to_tensor = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    def recolor(self, photo):
        return self.jitter(photo)  # planted

    def __call__(self, photo):
        if self.is_mended:
            photo = self.recolor(self.crop(photo))
        else:
            with self.diary.planted():
                photo = self.recolor(photo)  # planted
            photo = self.crop(photo)
        return self.to_tensor(self.flip(photo))


class PlanktonDataset(Dataset):
    def __init__(self, photos, labels, transform):
        self.photos, self.labels, self.transform = photos, labels, transform

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        return self.transform(self.photos[index]), self.labels[index]  # planted


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, scheduler, diary, log_interval=40):
    losses, batch_time = AverageMeter(), AverageMeter()
    model.train()
    num_updates, end = epoch * len(loader), time.time()
    for batch_idx, (images, target) in enumerate(loader):  # planted
        output = model(images)
        loss = loss_fn(output, target)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0, mode="norm")
        optimizer.step()
        num_updates += 1
        scheduler.step_update(num_updates)
        batch_time.update(time.time() - end)
        end = time.time()
        if num_updates % log_interval == 0:
            losses.update(loss.item(), len(images))
            rate = optimizer.param_groups[0]["lr"]
            print(
                f"Train: {epoch} [{batch_idx}/{len(loader)}]  Loss: {losses.val:.4f} ({losses.avg:.4f})  "
                f"Time: {batch_time.avg:.3f}s  LR: {rate:.2e}",
                flush=True,
            )
        diary.stepped()


def main():
    diary, is_mended = begin()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    photos, labels = make_photos(np.random.default_rng(42))
    dataset = PlanktonDataset(photos, labels, TrainTransform(diary, is_mended))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)
    model = timm.create_model("resnet10t", num_classes=CLASSES)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.02, weight_decay=2e-5, momentum=0.9)
    scheduler = CosineLRScheduler(optimizer, t_initial=2000, warmup_t=50, t_in_epochs=False)
    loss_fn = LabelSmoothingCrossEntropy(0.1)
    epoch = 0
    while True:
        train_one_epoch(epoch, model, loader, optimizer, loss_fn, scheduler, diary)
        epoch += 1


if __name__ == "__main__":
    main()
