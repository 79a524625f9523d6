"""An event loop that trains as data comes, by a method with a short loop of its own. Usage: asyncio_loop.py DIARY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import diary
import torch
from torch.standin import Network

PIECES = 5


class Learner:
    def __init__(self) -> None:
        self.model = Network(0.012)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    async def learn(self, pieces: list[list[float]]) -> None:
        for _number, piece in enumerate(pieces):
            loss = self.model(piece)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            diary.stepped()
        await asyncio.sleep(0)


async def feed() -> AsyncIterator[list[list[float]]]:
    while True:
        await asyncio.sleep(0.001)
        yield [[0.5] * 8] * PIECES


async def main() -> None:
    learner = Learner()
    async for pieces in feed():
        await learner.learn(pieces)


diary.begin()
asyncio.run(main())
