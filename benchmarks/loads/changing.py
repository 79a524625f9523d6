"""A loop of four functions that do a fixed amount of work each, one of them more of it: what two runs are compared by.

Usage: changing.py SECONDS [FACTOR]. ``augment`` does FACTOR times its work. Prints the steps that it made.
"""

import random
import sys
import time


def work(amount: int) -> float:
    """Compute for a while that depends on the amount alone."""
    total = 0.0
    for number in range(amount):
        total += number % 7 * 0.5
    return total


def decode(chance: random.Random) -> float:
    """Do uneven work, as of images of different sizes."""
    return work(int(60_000 * chance.uniform(0.7, 1.3)))


def augment(factor: float) -> float:
    """Do what one of two runs does more of."""
    return work(int(150_000 * factor))


def forward() -> float:
    """Do the largest part."""
    return work(250_000)


def update() -> float:
    """Do the smallest part."""
    return work(40_000)


def train(seconds: float, factor: float) -> int:
    """Step until the time is over."""
    chance = random.Random(1)
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        decode(chance)
        augment(factor)
        forward()
        update()
        step += 1
    return step


if __name__ == "__main__":
    print(train(float(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0))
