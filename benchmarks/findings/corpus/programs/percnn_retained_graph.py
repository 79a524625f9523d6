"""A recurrent convolution that learns the next states of a reacting fluid, in chunks of time whose graphs hang together.

Complaint: isds-neu/PeRCNN, issue 3, "training RNN using retain_graph=True": why is it used, "will this cause GPU memory explosion and training
process slowing down?" pytorch/pytorch issue 2769 is the same with an LSTM: the state of the last chunk is kept with its graph, so that each backward
pass goes through all chunks before it once more, and takes longer each time. Fix: detach the state between chunks. No figure is named.

What the remedy spares is a part of the backward pass: no clock of the program sees it, and the diary has no planted time.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    size: int = 24
    channels: int = 16
    chunks: int = 8
    chunk_length: int = 4
    batch: int = 2
    dt: float = 0.5
    learning_rate: float = 2e-3


class ReactionDiffusion:
    """Gray and Scott's two chemicals on a torus, by finite differences."""

    def __init__(self, config):
        self.config = config
        stencil = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]])
        self.stencil = stencil.expand(2, 1, 3, 3)
        self.rates = torch.tensor([0.16, 0.08])[:, None, None]

    def step(self, state):
        padded = nn.functional.pad(state, (1, 1, 1, 1), mode="circular")
        spread = self.rates * nn.functional.conv2d(padded, self.stencil, groups=2)
        first, second = state[:, 0], state[:, 1]
        reacted = first * second * second
        change = torch.stack([0.035 * (1 - first) - reacted, reacted - 0.1 * second], 1)
        return state + self.config.dt * (spread + change)

    @torch.no_grad()
    def record(self, length, warm_up=50):
        config = self.config
        state = torch.rand(config.batch, 2, config.size, config.size) * 0.1
        state[:, 0] += 0.8
        states = []
        for number in range(warm_up + length):
            state = self.step(state)
            if number >= warm_up:
                states.append(state)
        return torch.stack(states)


class RecurrentCell(nn.Module):
    """Products of convolutions, as in PeRCNN's pi-block."""

    def __init__(self, config):
        super().__init__()
        self.dt = config.dt
        self.branches = nn.ModuleList(
            nn.Conv2d(2, config.channels, 5, padding=2, padding_mode="circular") for _ in range(3)
        )
        self.mix = nn.Conv2d(config.channels, 2, 1)
        nn.init.zeros_(self.mix.weight)

    def forward(self, state):
        product = self.branches[0](state) * self.branches[1](state) * self.branches[2](state)
        return state + self.dt * self.mix(product)


def unroll(cell, state, length):
    states = []
    for _ in range(length):
        state = cell(state)
        states.append(state)
    return torch.stack(states), state


def train_sequence(cell, optimizer, recorded, config, cuts):
    """One update: the gradients of all chunks of a recorded sequence."""
    optimizer.zero_grad()
    state = recorded[0]
    for chunk in range(config.chunks):
        first = 1 + chunk * config.chunk_length
        predicted, state = unroll(cell, state, config.chunk_length)
        loss = nn.functional.mse_loss(predicted, recorded[first : first + config.chunk_length])
        if cuts:
            loss.backward()
            state = state.detach()
        else:
            loss.backward(retain_graph=True)  # planted
    optimizer.step()


def main():
    diary, is_mended = begin()
    config = Config()
    cell, fluid = RecurrentCell(config), ReactionDiffusion(config)
    optimizer = torch.optim.Adam(cell.parameters(), lr=config.learning_rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=200, gamma=0.98)
    recordings = [fluid.record(1 + config.chunks * config.chunk_length) for _ in range(8)]
    for step in range(10**9):
        train_sequence(cell, optimizer, recordings[step % len(recordings)], config, is_mended)  # planted
        scheduler.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.set_num_threads(1)
    main()
