"""Steps in epochs of 4 s; the only counts, of steps and of epochs, are attributes. Usage: attribute_loop.py DIARY."""

import diary
import torch
from torch.standin import Network, loader


class Experiment:
    def __init__(self) -> None:
        self.epoch = 0
        self.global_step = 0
        self.model = Network(0.03)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1)

    def run(self) -> None:
        while self.epoch < 1_000:
            for batch in loader(100, 0.01):
                self.optimizer.zero_grad()
                loss = self.model(batch)
                loss.backward()
                self.optimizer.step()
                self.global_step += 1
                diary.stepped(self.global_step)
            self.schedule.step()
            self.epoch += 1


diary.begin()
Experiment().run()
