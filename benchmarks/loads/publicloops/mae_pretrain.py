"""Steps in the form of facebookresearch/mae, ``engine_pretrain.py``: batches come through a generator that logs.

``log_every`` (``util/misc.py``) counts in a local of its own; a scaler object does the backward pass and the update.
Usage: mae_pretrain.py DIARY.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import diary
import torch
from torch.standin import Network, loader

ACCUM_ITER = 2


class SmoothedValue:
    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=20)
        self.count = 0

    def update(self, value: float) -> None:
        self.recent.append(value)
        self.count += 1

    def average(self) -> float:
        return sum(self.recent) / len(self.recent)


class MetricLogger:
    def __init__(self) -> None:
        self.meters: dict[str, SmoothedValue] = defaultdict(SmoothedValue)

    def log_every(self, batches: Any, print_freq: int, header: str) -> Iterator[Any]:  # noqa: ANN401
        i = 0
        end = time.time()
        for batch in batches:
            yield batch
            self.meters["time"].update(time.time() - end)
            if i % print_freq == 0:
                took = self.meters["time"].average()
                print(f"{header}  [{i}/{len(batches)}]  time: {took:.4f}", flush=True)
            i += 1  # noqa: SIM113
            end = time.time()


class NativeScaler:
    def __init__(self) -> None:
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss: Any, optimizer: torch.optim.Optimizer, update_grad: bool) -> None:  # noqa: ANN401
        self._scaler.scale(loss).backward()
        if update_grad:
            self._scaler.unscale_(optimizer)
            self._scaler.step(optimizer)
            self._scaler.update()


def train_one_epoch(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int, loss_scaler: NativeScaler
) -> None:
    metric_logger = MetricLogger()
    batches = metric_logger.log_every(loader(170, 0.01), 20, f"Epoch: [{epoch}]")
    optimizer.zero_grad()
    for data_iter_step, (samples, _) in enumerate(batches):
        if data_iter_step % ACCUM_ITER == 0:
            optimizer.param_groups[0]["lr"] = 1e-3 * (data_iter_step / 170 + epoch)
        loss = model(samples) / ACCUM_ITER
        loss_scaler(loss, optimizer, update_grad=(data_iter_step + 1) % ACCUM_ITER == 0)
        diary.batched()
        if (data_iter_step + 1) % ACCUM_ITER == 0:
            optimizer.zero_grad()
            diary.stepped()
        metric_logger.meters["loss"].update(loss.item())


def main() -> None:
    model = Network(0.025)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loss_scaler = NativeScaler()
    for epoch in range(800):
        train_one_epoch(model, optimizer, epoch, loss_scaler)


diary.begin()
main()
