"""Segmentation of medical slices with a U-Net in a Lightning module, with metrics, callbacks and a validation.

Nothing is planted: the metrics are tensors, the validation is short, and a checkpoint is written after it.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryJaccardIndex

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.InstanceNorm2d(c_out, affine=True),
        nn.LeakyReLU(0.01, inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
        nn.InstanceNorm2d(c_out, affine=True),
        nn.LeakyReLU(0.01, inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2 = double_conv(1, width), double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge2, self.merge1 = double_conv(4 * width, 2 * width), double_conv(2 * width, width)
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(self.pool(first))
        x = self.up2(self.bottom(self.pool(second)))
        x = self.up1(self.merge2(torch.cat([x, second], 1)))
        return self.head(self.merge1(torch.cat([x, first], 1)))


class DiceBCELoss(nn.Module):
    def forward(self, logits, masks):
        probabilities = logits.sigmoid()
        overlap = (probabilities * masks).sum((1, 2, 3))
        dice = (2 * overlap + 1) / (probabilities.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)
        return nn.functional.binary_cross_entropy_with_logits(logits, masks) + (1 - dice).mean()


class SegmentationModule(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net, self.criterion = UNet(), DiceBCELoss()
        self.train_iou, self.val_iou = BinaryJaccardIndex(), BinaryJaccardIndex()

    def training_step(self, batch, batch_idx):
        images, masks = batch
        logits = self.net(images)
        loss = self.criterion(logits, masks)
        self.train_iou(logits, masks.int())
        self.log("train/loss", loss, on_step=True, on_epoch=False)
        self.log("train/iou", self.train_iou, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, masks = batch
        logits = self.net(images)
        self.val_iou(logits, masks.int())
        self.log("val/loss", self.criterion(logits, masks))
        self.log("val/iou", self.val_iou)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=50)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "epoch"}}


class SlicesDataModule(L.LightningDataModule):
    def __init__(self, batch_size=4, side=96):
        super().__init__()
        self.batch_size, self.side = batch_size, side

    def setup(self, stage=None):
        self.train, self.val = self._slices(480), self._slices(16)

    def _slices(self, count):
        yy, xx = torch.meshgrid(*[torch.linspace(-1, 1, self.side)] * 2, indexing="ij")
        place, axes = torch.rand(count, 2, 1, 1) - 0.5, 0.1 + 0.3 * torch.rand(count, 2, 1, 1)
        inside = ((xx - place[:, 0]) / axes[:, 0]) ** 2 + ((yy - place[:, 1]) / axes[:, 1]) ** 2 < 1
        masks = inside.float()[:, None]
        return TensorDataset(masks + 0.5 * torch.randn_like(masks), masks)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size)


class StepDiary(L.Callback):
    def __init__(self, diary):
        self.diary = diary

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.diary.stepped()


def main(diary, _):
    folder = tempfile.mkdtemp()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        logger=CSVLogger(folder, flush_logs_every_n_steps=200),
        log_every_n_steps=20,
        gradient_clip_val=1.0,
        callbacks=[ModelCheckpoint(monitor="val/iou", mode="max"), LearningRateMonitor("epoch"), StepDiary(diary)],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(SegmentationModule(), datamodule=SlicesDataModule())


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    L.seed_everything(0)
    torch.set_num_threads(1)
    main(*begin())
