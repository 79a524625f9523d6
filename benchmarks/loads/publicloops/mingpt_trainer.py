"""Steps in the form of karpathy/minGPT, ``mingpt/trainer.py``: an endless loop in ``run``, counted in an attribute.

The loader is asked by ``next``, callbacks come before the count goes up. Usage: mingpt_trainer.py DIARY.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

import diary
import torch
from torch.standin import Network, loader


class Trainer:
    def __init__(self) -> None:
        self.model = Network(0.03)
        self.callbacks: dict[str, list[Callable[[Trainer], None]]] = defaultdict(list)
        self.iter_num = 0
        self.iter_time = self.iter_dt = 0.0

    def trigger_callbacks(self, event: str) -> None:
        for callback in self.callbacks[event]:
            callback(self)

    def run(self) -> None:
        model = self.model
        optimizer = torch.optim.SGD(model.parameters(), lr=3e-4)
        train_loader = loader(90, 0.01)
        model.train()
        self.iter_num = 0
        self.iter_time = time.time()
        data_iter = iter(train_loader)
        while True:
            try:
                batch = next(data_iter)
            except StopIteration:
                data_iter = iter(train_loader)
                batch = next(data_iter)
            loss = model(batch)
            model.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            self.trigger_callbacks("on_batch_end")
            self.iter_num += 1
            diary.stepped(self.iter_num)
            now = time.time()
            self.iter_dt, self.iter_time = now - self.iter_time, now


def batch_end(trainer: Trainer) -> None:
    if trainer.iter_num % 100 == 0:
        print(f"iter_dt {trainer.iter_dt * 1000:.2f}ms; iter {trainer.iter_num}", flush=True)


diary.begin()
gpt = Trainer()
gpt.callbacks["on_batch_end"].append(batch_end)
gpt.run()
