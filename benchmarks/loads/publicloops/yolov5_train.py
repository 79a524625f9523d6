"""Steps in the form of ultralytics/yolov5, ``train.py``: tqdm around ``enumerate`` of a loader, in a long function.

``ni`` goes on over the epochs; the optimizer steps where enough batches have come since ``last_opt_step``. Usage:
yolov5_train.py DIARY.
"""

from __future__ import annotations

import os

import diary
import torch
from torch.standin import Network, loader, work
from tqdm import tqdm


def run_validation(model: torch.nn.Module) -> None:
    with torch.no_grad(), open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for _batch_i, (images, _targets) in enumerate(tqdm(loader(25, 0.01), file=nowhere)):
            model(images)


def train(epochs: int) -> None:
    model = Network(0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    scaler = torch.amp.GradScaler("cuda")
    train_loader = loader(120, 0.01)
    nb = len(train_loader)
    nw = 2 * nb
    last_opt_step = -1
    accumulate = 1
    nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115
    for epoch in range(epochs):
        model.train()
        pbar = tqdm(enumerate(train_loader), total=nb, file=nowhere)
        optimizer.zero_grad()
        for i, (images, _targets) in pbar:
            ni = i + nb * epoch
            if ni <= nw:
                accumulate = max(1, round(2 * ni / nw))
            loss = model(images)
            scaler.scale(loss).backward()
            diary.batched()
            if ni - last_opt_step >= accumulate:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                last_opt_step = ni
                diary.stepped()
            pbar.set_description(f"{epoch}/{epochs - 1} {loss.item():10.4g}")
        scheduler.step()
        run_validation(model)
        work(0.3)


diary.begin()
train(epochs=300)
