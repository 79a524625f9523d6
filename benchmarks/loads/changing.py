"""A loop of four functions that do a fixed amount of work each, one of them more of it: what two runs are compared by.

Usage: changing.py SECONDS [ROUNDS]. ``augment`` does so many rounds of its work, 30 unless given: a third of a step.
Prints the steps that it made and the seconds that they took.
"""

import random
import sys
import time

ROUNDS = 30


def work(amount: int) -> float:
    """Compute for a while that depends on the amount alone."""
    total = 0.0
    for number in range(amount):
        total += number % 7 * 0.5
    return total


def decode(chance: random.Random) -> float:
    """Do uneven work, as of images of different sizes."""
    return work(int(60_000 * chance.uniform(0.7, 1.3)))


def augment(rounds: int) -> float:
    """Do what one of two runs does more of."""
    return work(5_000 * rounds)


def forward() -> float:
    """Do the largest part."""
    return work(250_000)


def update() -> float:
    """Do the smallest part."""
    return work(40_000)


def train(seconds: float, rounds: int) -> tuple[int, float]:
    """Step until the time is over; returns how often, and how long that took."""
    chance = random.Random(1)
    started = time.monotonic()
    step = 0
    while (elapsed := time.monotonic() - started) < seconds:
        decode(chance)
        augment(rounds)
        forward()
        update()
        step += 1
    return step, elapsed


if __name__ == "__main__":
    print(*train(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS))
