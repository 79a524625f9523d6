"""Programs whose memory goes up and down and does not grow, each by its name; without one, lists the names.

Each makes twenty steps a second, and ends with its stdin.
"""

from __future__ import annotations

import itertools
import random
import select
import sys
import threading
from collections.abc import Iterator

MB = 1_000_000
STEPS_PER_S = 20


def block(size: int) -> bytearray:
    """Return memory whose pages were all written to."""
    return bytearray(b"x") * size


def idle() -> Iterator[None]:
    kept = block(50 * MB)
    while kept:
        yield


def warming() -> Iterator[None]:
    """Fill a cache that misses more and more seldom."""
    cache: dict[int, bytearray] = {}
    while True:
        key = random.randrange(300)
        if key not in cache:
            cache[key] = block(MB // 5)
        yield


def filling() -> Iterator[None]:
    """Hold a data set in memory once it was read."""
    kept = []
    for _ in range(300):
        kept.append(block(MB // 4))
        yield
    while True:
        yield


def epochs() -> Iterator[None]:
    """Keep the outputs of each step until the epoch ends."""
    kept = []
    for step in itertools.count(1):
        kept.append(block(MB // 2))
        if step % 160 == 0:
            kept.clear()
        yield


def validations() -> Iterator[None]:
    """Need memory for three seconds, four times a minute."""
    kept: list[bytearray] = []
    for step in itertools.count():
        if step % 300 == 240:
            kept.append(block(80 * MB))
        elif step % 300 == 0:
            kept.clear()
        yield


def jump() -> Iterator[None]:
    kept = []
    for step in itertools.count():
        if step == 25 * STEPS_PER_S:
            kept.append(block(150 * MB))
        yield


def activations() -> Iterator[None]:
    while True:
        block(random.randrange(5, 30) * MB)
        yield


def fragments() -> Iterator[None]:
    """Make and drop objects of all sizes."""
    kept = [bytearray() for _ in range(400)]
    while True:
        for _ in range(20):
            kept[random.randrange(400)] = block(random.randrange(1000, 300_000))
        yield


def workers() -> Iterator[None]:
    """Start threads one after the other, each with memory of its own."""
    ended = threading.Event()
    kept: list[bytearray] = []
    for step in itertools.count():
        if step % 30 == 0 and len(kept) < 8:
            kept.append(block(5 * MB))
            threading.Thread(target=ended.wait, daemon=True).start()
        yield


def logs() -> Iterator[None]:
    """Keep the losses of all steps: that is no leak to speak of."""
    losses = []
    while True:
        losses.append(random.random())
        yield


KINDS = {
    kind.__name__: kind
    for kind in (idle, warming, filling, epochs, validations, jump, activations, fragments, workers, logs)
}


def main() -> None:
    if len(sys.argv) < 2:
        print(*KINDS)
        return
    for _ in KINDS[sys.argv[1]]():
        if select.select([sys.stdin], [], [], 1 / STEPS_PER_S)[0]:
            return


if __name__ == "__main__":
    main()
