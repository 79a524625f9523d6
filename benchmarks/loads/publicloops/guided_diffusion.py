"""Steps in the form of openai/guided-diffusion, ``guided_diffusion/train_util.py``: ``run_loop`` with ``self.step``.

A batch is cut into micro-batches by a range with a stride, two calls further in; data come from a generator without
end. Resumes at a step of its own. Usage: guided_diffusion.py DIARY.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import diary
import torch
from torch.standin import Network, loader


def load_data() -> Iterator[Any]:
    while True:
        yield from loader(100, 0.008)


class TrainLoop:
    def __init__(self, microbatch: int) -> None:
        self.model = Network(0.012)
        self.data = load_data()
        self.microbatch = microbatch
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.step = 0
        self.resume_step = 20_000
        self.lr_anneal_steps = 0

    def run_loop(self) -> None:
        while not self.lr_anneal_steps or self.step + self.resume_step < self.lr_anneal_steps:
            batch = next(self.data)
            self.run_step(batch)
            if self.step % 50 == 0:
                print(f"| step | {self.step + self.resume_step} |", flush=True)
            self.step += 1
            diary.stepped(self.step)

    def run_step(self, batch: list[Any]) -> None:
        self.forward_backward(batch)
        self.opt.step()

    def forward_backward(self, batch: list[Any]) -> None:
        self.opt.zero_grad()
        images, labels = batch
        for i in range(0, len(images), self.microbatch):
            loss = self.model(images[i : i + self.microbatch], labels[i : i + self.microbatch])
            loss.backward()
            diary.batched()


diary.begin()
TrainLoop(microbatch=2).run_loop()
