"""Steps in the form of facebookresearch/detectron2, ``detectron2/engine/train_loop.py``: ``for self.iter in range``.

The step is a method of a derived class, which asks an endless iterator; hooks come around each step. Usage:
detectron2_engine.py DIARY.
"""

from __future__ import annotations

import itertools
import time

import diary
import torch
from torch.standin import Network, loader


class TrainerBase:
    def __init__(self) -> None:
        self.iter = self.start_iter = self.max_iter = 0
        self.hooks: list[Writer] = []

    def train(self, start_iter: int, max_iter: int) -> None:
        self.iter = self.start_iter = start_iter
        self.max_iter = max_iter
        for self.iter in range(start_iter, max_iter):
            self.before_step()
            self.run_step()
            self.after_step()
            diary.stepped(self.iter)
        self.iter += 1

    def before_step(self) -> None:
        for hook in self.hooks:
            hook.before_step()

    def after_step(self) -> None:
        for hook in self.hooks:
            hook.after_step(self)

    def run_step(self) -> None:
        raise NotImplementedError


class Writer:
    def __init__(self, period: int) -> None:
        self.period = period
        self.started = 0.0

    def before_step(self) -> None:
        self.started = time.perf_counter()

    def after_step(self, trainer: TrainerBase) -> None:
        if (trainer.iter + 1) % self.period == 0:
            print(f"iter: {trainer.iter}  time: {time.perf_counter() - self.started:.4f}", flush=True)


class SimpleTrainer(TrainerBase):
    def __init__(self) -> None:
        super().__init__()
        self.model = Network(0.03)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self._data_loader_iter = itertools.chain.from_iterable(itertools.repeat(loader(70, 0.01)))

    def run_step(self) -> None:
        data = next(self._data_loader_iter)
        loss_dict = {"loss_cls": self.model(data)}
        losses = loss_dict["loss_cls"]
        self.optimizer.zero_grad()
        losses.backward()
        self.optimizer.step()


diary.begin()
simple = SimpleTrainer()
simple.hooks += [Writer(20), Writer(500)]
simple.train(start_iter=0, max_iter=90_000)
