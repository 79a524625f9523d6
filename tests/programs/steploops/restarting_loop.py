"""Steps in a short ``for`` that begins anew several times a second, and mostly ends early. Usage: restarting_loop.py DIARY."""

import random

import diary
import torch
from torch.standin import Network, work


class Game:
    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.left = 0

    def reset(self) -> None:
        self.left = self.chance.choice((3, 4, 5, 17))
        work(0.004)

    def is_over(self) -> bool:
        self.left -= 1
        return not self.left


def play(game: Game, model: Network, optimizer: torch.optim.SGD) -> None:
    game.reset()
    for _t in range(1_000):
        loss = model([0.5] * 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        if game.is_over():
            break


def train() -> None:
    model = Network(0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    game = Game()
    while True:
        play(game, model, optimizer)


diary.begin()
train()
