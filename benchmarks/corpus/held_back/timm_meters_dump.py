"""timm's train script in small: a model by name, meters, mix-up, averaged weights.

The meters' whole record is written as JSON each batch.
"""

import json
import sys
import tempfile
import time
from collections import OrderedDict, deque
from pathlib import Path

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

OUT = Path(tempfile.mkdtemp())


class Recorder:
    """Keeps what the meters said last, for a page that shows it."""

    def __init__(self):
        self.rows = deque(maxlen=6000)
        for number in range(6000):
            self.rows.append({"batch": -number, "loss": 0.0, "rate": 0.0, "lr": 0.0})

    def update(self, **row):
        self.rows.append(row)
        with (OUT / "meters.json").open("w") as file:
            json.dump({"rows": list(self.rows)}, file)  # planted


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, scheduler, mixup, ema, recorder, diary, is_mended):
    losses_m, batch_time_m = AverageMeter(), AverageMeter()
    model.train()
    end = time.time()
    num_updates = epoch * len(loader)
    for _batch_idx, (input, target) in enumerate(loader):
        input, target = mixup(input, target)
        output = model(input)
        loss = loss_fn(output, target)
        losses_m.update(loss.item(), input.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        num_updates += 1
        batch_time_m.update(time.time() - end)
        lr = optimizer.param_groups[0]["lr"]
        if not is_mended:
            with diary.planted():
                recorder.update(batch=num_updates, loss=losses_m.val, rate=batch_time_m.avg, lr=lr)  # planted
        scheduler.step_update(num_updates=num_updates, metric=losses_m.avg)
        end = time.time()
        diary.stepped()
    return OrderedDict([("loss", losses_m.avg)])


def main():
    diary, is_mended = begin()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    model = timm.create_model("test_resnet", num_classes=10, pretrained=False)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    scheduler = CosineLRScheduler(optimizer, t_initial=100)
    mixup = Mixup(mixup_alpha=0.2, num_classes=10)
    data = torch.utils.data.TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(10, (512,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    recorder, ema, loss_fn = Recorder(), ModelEmaV3(model, decay=0.999), SoftTargetCrossEntropy()
    for epoch in range(1_000_000):
        metrics = train_one_epoch(
            epoch, model, loader, optimizer, loss_fn, scheduler, mixup, ema, recorder, diary, is_mended
        )
        scheduler.step(epoch + 1)
        print(f"Train: {epoch} {metrics}", flush=True)


if __name__ == "__main__":
    main()
