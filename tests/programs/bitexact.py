"""Computes the same matrix products and convolutions round after round, and compares them bit for bit.

Prints "ready" after three rounds. For each line on stdin it prints, as JSON, how many rounds there were, how many of
them were wrong, and the longest time for which a thread that beats every two milliseconds stood still; all since the
last line. It ends with stdin.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import torch
from torch import nn

BEAT_S = 0.002
PAUSE_S = 0.005


class Heart:
    """Beats on a thread of its own."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        before = time.perf_counter()
        while True:
            time.sleep(BEAT_S)
            now = time.perf_counter()
            self.longest_s = max(self.longest_s, now - before)
            before = now


class Work:
    """What is computed, once to know it and then again and again."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self._left, self._right = torch.randn(2, 160, 160).unbind()
        self._images = torch.randn(4, 3, 24, 24)
        self._convolution = nn.Conv2d(3, 16, 3)
        self._optimizer = torch.optim.SGD(self._convolution.parameters(), lr=0.0)
        self._known = self._compute()
        self.rounds = self.wrong = 0

    def repeat(self) -> None:
        """Compute everything once more."""
        again = self._compute()
        self.rounds += 1
        self.wrong += not all(torch.equal(one, other) for one, other in zip(self._known, again, strict=True))

    def _compute(self) -> list[torch.Tensor]:
        product = self._left @ self._right
        features = self._convolution(self._images)
        self._optimizer.zero_grad()
        features.square().mean().backward()
        self._optimizer.step()
        gradient = self._convolution.weight.grad
        assert gradient is not None
        return [product, features.detach(), gradient.clone()]


def main() -> None:
    """Compute until stdin ends."""
    work, heart = Work(), Heart()
    over = threading.Event()

    def answer() -> None:
        for _ in sys.stdin:
            print(json.dumps({"rounds": work.rounds, "wrong": work.wrong, "still_s": heart.longest_s}), flush=True)
            work.rounds = work.wrong = 0
            heart.longest_s = 0.0
        over.set()

    threading.Thread(target=answer, daemon=True).start()
    for _ in range(3):
        work.repeat()
    print("ready", flush=True)
    while not over.is_set():
        work.repeat()
        time.sleep(PAUSE_S)


main()
