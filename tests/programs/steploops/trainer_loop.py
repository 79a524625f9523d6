"""Steps as Hugging Face's Trainer does, whose own count is an attribute. Usage: trainer_loop.py DIARY."""

from __future__ import annotations

from typing import Any

import diary
import torch
from torch.standin import Network, loader


class State:
    def __init__(self) -> None:
        self.global_step = 0
        self.epoch = 0.0


class Trainer:
    def __init__(self) -> None:
        self.state = State()
        self.model = Network(0.03)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self) -> None:
        return self._inner_training_loop(steps_in_epoch=150)

    def _inner_training_loop(self, steps_in_epoch: int) -> None:
        epochs_trained = steps_trained_in_current_epoch = 0
        for epoch in range(epochs_trained, 1_000):
            epoch_iterator = loader(steps_in_epoch, 0.005)
            for step, inputs in enumerate(epoch_iterator):
                if steps_trained_in_current_epoch > step:
                    continue
                self.training_step(inputs)
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.state.global_step += 1
                self.state.epoch = epoch + (step + 1) / steps_in_epoch
                diary.stepped(self.state.global_step)

    def training_step(self, inputs: list[Any]) -> float:
        loss = self.model(inputs)
        loss.backward()
        return float(loss.item())


diary.begin()
Trainer().train()
