"""Classification of images with a recipe as timm has it: mixup, an average of the weights, warmup, a cosine.

Nothing is planted: the averages, the meters and the clipping cost little beside the network.
"""

import logging
import sys
import time
from pathlib import Path

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, accuracy, dispatch_clip_grad
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

_logger = logging.getLogger("train")

DEFAULTS = {
    "model": "resnet10t",
    "num_classes": 20,
    "img_size": 64,
    "batch_size": 16,
    "epochs": 300_000,
    "opt": "sgd",
    "lr": 0.05,
    "weight_decay": 2e-5,
    "warmup_epochs": 3,
    "clip_grad": 1.0,
    "mixup": 0.2,
    "smoothing": 0.1,
    "model_ema_decay": 0.999,
    "log_interval": 20,
    "validate_every": 4,
}


class SyntheticImages:
    """Colors with noise: the classes differ by their colors."""

    def __init__(self, cfg, size=640):
        self.colors = torch.rand(cfg["num_classes"], 3, 1, 1)
        self.train = self._split(cfg, size)
        self.validation = self._split(cfg, 64)

    def _split(self, cfg, size):
        labels = torch.randint(cfg["num_classes"], (size,))
        noise = torch.rand(size, 3, cfg["img_size"], cfg["img_size"])
        return TensorDataset(0.5 * self.colors[labels] + 0.5 * noise, labels)


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, mixup_fn, scheduler, ema, cfg, diary):
    update_time, losses = AverageMeter(), AverageMeter()
    model.train()
    updates, begun = epoch * len(loader), time.time()
    for index, (images, target) in enumerate(loader):
        images, target = mixup_fn(images, target)
        output = model(images)
        loss = loss_fn(output, target)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), cfg["clip_grad"], mode="norm")
        optimizer.step()
        updates += 1
        ema.update(model, step=updates)
        update_time.update(time.time() - begun)
        begun = time.time()
        if index % cfg["log_interval"] == 0:
            losses.update(loss.item(), len(images))
            rate = optimizer.param_groups[0]["lr"]
            _logger.info(
                f"Train: {epoch} [{index:>4d}/{len(loader)}]  Loss: {losses.val:#.3g} ({losses.avg:#.3g})  "
                f"Time: {update_time.val:.3f}s ({update_time.avg:.3f}s)  LR: {rate:.3e}"
            )
        scheduler.step_update(num_updates=updates, metric=losses.avg)
        diary.stepped()


@torch.inference_mode()
def validate(model, loader):
    top1, top5 = AverageMeter(), AverageMeter()
    model.eval()
    for images, target in loader:
        acc1, acc5 = accuracy(model(images), target, topk=(1, 5))
        top1.update(acc1.item(), len(images))
        top5.update(acc5.item(), len(images))
    return {"top1": top1.avg, "top5": top5.avg}


def main(diary, _):
    cfg = dict(DEFAULTS)
    model = timm.create_model(cfg["model"], num_classes=cfg["num_classes"])
    optimizer = create_optimizer_v2(model, opt=cfg["opt"], lr=cfg["lr"], weight_decay=cfg["weight_decay"])
    ema = ModelEmaV3(model, decay=cfg["model_ema_decay"], use_warmup=True)
    data = SyntheticImages(cfg)
    loader = DataLoader(data.train, cfg["batch_size"], shuffle=True, drop_last=True)
    mixup_fn = Mixup(mixup_alpha=cfg["mixup"], label_smoothing=cfg["smoothing"], num_classes=cfg["num_classes"])
    scheduler = CosineLRScheduler(
        optimizer, t_initial=cfg["epochs"], warmup_t=cfg["warmup_epochs"], warmup_lr_init=1e-4
    )
    for epoch in range(cfg["epochs"]):
        train_one_epoch(epoch, model, loader, optimizer, SoftTargetCrossEntropy(), mixup_fn, scheduler, ema, cfg, diary)
        if (epoch + 1) % cfg["validate_every"] == 0:
            _logger.info(f"Test (EMA): {validate(ema, DataLoader(data.validation, 32))}")
        scheduler.step(epoch + 1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(42)
    torch.set_num_threads(1)
    main(*begin())
