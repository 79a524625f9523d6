"""An LSTM for the runoff of rivers, whose loop writes its arrays into messages for a log level that is off.

Complaint: NOAA-OWP/lstm, pull request 62, "Eager debug fix": debug messages are f-strings, so the arrays become text for each time step even if
debug logging is not enabled. Fix: build the text only where it is logged (``%s`` and arguments). "The exact speedup varies but is roughly 2x."
"""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LOG = logging.getLogger("runoff")


@dataclass
class Config:
    basins: int = 24
    days: int = 120
    forcings: int = 8
    hidden: int = 64
    learning_rate: float = 1e-3


class Basins:
    """Rain, temperature and the like of made basins, and what runs off by a leaking bucket."""

    def __init__(self, config, years=6):
        generator = np.random.default_rng(5)
        self.config, self.length = config, 365 * years
        self.forcings = generator.gamma(0.6, 2.0, (config.basins, self.length, config.forcings)).astype("float32")
        self.runoff = np.zeros((config.basins, self.length), dtype="float32")
        stored = np.zeros(config.basins, dtype="float32")
        for day in range(self.length):
            stored = 0.93 * stored + self.forcings[:, day, 0]
            self.runoff[:, day] = 0.07 * stored
        self.mean, self.spread = self.forcings.mean((0, 1)), self.forcings.std((0, 1))

    def window(self, generator):
        first = int(generator.integers(self.length - self.config.days))
        days = slice(first, first + self.config.days)
        return self.forcings[:, days], self.runoff[:, days]


class EagerNotes:
    def about(self, name, array):
        LOG.debug(f"{name}: {array}")  # planted


class LazyNotes:
    def about(self, name, array):
        LOG.debug("%s: %s", name, array)


class RunoffModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.lstm = nn.LSTM(config.forcings, config.hidden, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(config.hidden, 1))

    def forward(self, forcings):
        states, _ = self.lstm(forcings)
        return self.head(states)[..., 0]


class Trainer:
    def __init__(self, config, basins, notes, diary):
        self.config, self.basins, self.notes, self.diary = config, basins, notes, diary
        self.model = RunoffModel(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.learning_rate)
        self.generator = np.random.default_rng(6)

    def prepare(self):
        forcings, runoff = self.basins.window(self.generator)
        scaled = (forcings - self.basins.mean) / self.basins.spread
        self.write_down("forcings", forcings)  # planted
        self.write_down("scaled forcings", scaled)  # planted
        return torch.from_numpy(scaled), torch.from_numpy(runoff)

    def write_down(self, name, array):
        with self.diary.planted():
            self.notes.about(name, array)  # planted

    def step(self):
        scaled, runoff = self.prepare()  # planted
        simulated = self.model(scaled)
        loss = nash_sutcliffe_loss(simulated[:, 30:], runoff[:, 30:])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        for name, parameter in self.model.named_parameters():
            self.write_down(name, parameter)  # planted
        self.diary.stepped()
        return loss


def nash_sutcliffe_loss(simulated, observed):
    spread = observed.std(1, keepdim=True) + 0.1
    return ((simulated - observed) / spread).square().mean()


def main():
    diary, is_mended = begin()
    config = Config()
    trainer = Trainer(config, Basins(config), LazyNotes() if is_mended else EagerNotes(), diary)
    for step in range(10**9):
        loss = trainer.step()  # planted
        if step % 100 == 0:
            LOG.info("step %d: loss %.3f", step, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(5)
    torch.set_num_threads(1)
    main()
