"""As ``torch/optim/lr_scheduler.py``: a schedule counts how often it is called, by step or by epoch."""

from __future__ import annotations

from .optimizer import Optimizer


class LRScheduler:
    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.last_epoch = 0
        self._step_count = 1

    def step(self) -> None:
        self._step_count += 1
        self.last_epoch += 1


class StepLR(LRScheduler):
    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(optimizer)
        self.step_size = step_size
        self.gamma = gamma
