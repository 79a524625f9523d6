"""Segments ventricles on cine MRI with Lightning; Dice loss, and the Hausdorff distance for the curve."""

import logging
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, STRUCTURES = 80, 3


def hausdorff95(predicted, wanted):
    """Return the 95th percentile of the distances between two masks, in pixels, both ways."""
    a, b = predicted.nonzero().float(), wanted.nonzero().float()
    if len(a) == 0 or len(b) == 0:
        return torch.tensor(float(SIDE))
    distances = torch.cdist(a, b)  # planted
    nearest = torch.cat([distances.amin(1), distances.amin(0)])  # planted
    return nearest.quantile(0.95)


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enc1, self.enc2 = self.stage(1, width), self.stage(width, 2 * width)
        self.enc3 = self.stage(2 * width, 4 * width)
        self.dec2, self.dec1 = self.stage(6 * width, 2 * width), self.stage(3 * width, width)
        self.out = nn.Conv2d(width, STRUCTURES, 1)

    @staticmethod
    def stage(c1, c2):
        return nn.Sequential(nn.Conv2d(c1, c2, 3, padding=1), nn.GroupNorm(4, c2), nn.SiLU(inplace=True))

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        e3 = self.enc3(F.max_pool2d(e2, 2))
        d2 = self.dec2(torch.cat([F.interpolate(e3, scale_factor=2.0), e2], 1))
        return self.out(self.dec1(torch.cat([F.interpolate(d2, scale_factor=2.0), e1], 1)))


def dice_loss(logits, wanted):
    p = logits.softmax(1)[:, 1:]
    target = F.one_hot(wanted, STRUCTURES).permute(0, 3, 1, 2)[:, 1:].float()
    overlap = (p * target).sum((2, 3))
    return 1 - ((2 * overlap + 1) / (p.sum((2, 3)) + target.sum((2, 3)) + 1)).mean()


class CineSegmenter(L.LightningModule):
    def __init__(self, diary, is_mended, lr=1e-3):
        super().__init__()
        self.net, self.diary, self.lr = UNet(), diary, lr
        self.every = 500 if is_mended else 1
        self.distances = {}

    def training_step(self, batch, batch_idx):
        image, wanted = batch
        logits = self.net(image)
        loss = F.cross_entropy(logits, wanted) + dice_loss(logits, wanted)
        if self.global_step % self.every == 0:
            with self.diary.planted():
                self.note_distances(logits.detach().argmax(1), wanted)  # planted
        return loss

    def note_distances(self, predicted, wanted):
        for structure, name in ((1, "left"), (2, "right")):
            pairs = zip(predicted == structure, wanted == structure, strict=True)
            each = [hausdorff95(p, w) for p, w in pairs]  # planted
            self.distances[name] = torch.stack(each).mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.diary.stepped()

    def on_train_epoch_end(self):
        if self.current_epoch % 10 == 0:
            told = " ".join(f"{name} {distance.item():.2f}" for name, distance in self.distances.items())
            print(f"epoch {self.current_epoch} hd95 {told}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)


def make_slices(number=240):
    """Each heart has a round left and a crescent right ventricle."""
    axis = torch.arange(SIDE).float()
    y, x = axis[:, None], axis[None, :]
    center = torch.rand(number, 2, 1, 1) * 16 + 32
    radius = torch.rand(number, 1, 1) * 5 + 14
    left = (y - center[:, 0]) ** 2 + (x - center[:, 1]) ** 2 < radius**2
    right = ((y - center[:, 0]) / 1.2) ** 2 + (x - center[:, 1] + 14) ** 2 < (radius + 2) ** 2
    wanted = left.long() + 2 * (right & ~left).long()
    image = torch.tensor([0.2, 0.8, 0.55])[wanted] + 0.15 * torch.randn(number, SIDE, SIDE)
    return TensorDataset(image[:, None], wanted)


def main():
    diary, is_mended = begin()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    slices = make_slices()
    sampler = BatchSampler(RandomSampler(slices), 8, drop_last=True)
    loader = DataLoader(slices, sampler=sampler, batch_size=None)
    trainer = L.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(CineSegmenter(diary, is_mended), loader)


if __name__ == "__main__":
    main()
