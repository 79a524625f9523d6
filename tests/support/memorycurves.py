"""Curves of the memory of processes, a value a second: ten kinds that are steady, and leaks on top
of them.

All but the last kinds have a start of some seconds, in which modules are loaded and a model is
made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

MB = 1e6
Curve = Callable[[float], float]
"""Bytes after so many seconds, without noise."""
Kind = Callable[[random.Random], Curve]


def still(chance: random.Random) -> Curve:
    """Keep what is there."""
    return lambda at_s: 0.0


def warming(chance: random.Random) -> Curve:
    """Fill a cache more and more slowly."""
    size, time_s = chance.uniform(50, 2000) * MB, chance.uniform(3, 25)
    return lambda at_s: size * (1 - math.exp(-at_s / time_s))


def filling(chance: random.Random) -> Curve:
    """Fill a cache evenly, until it is full."""
    size, begin_s, length_s = (
        chance.uniform(50, 2000) * MB,
        chance.uniform(0, 5),
        chance.uniform(5, 30),
    )
    return lambda at_s: size * min(max((at_s - begin_s) / length_s, 0.0), 1.0)


def epochs(chance: random.Random) -> Curve:
    """Hold on to all that an epoch makes, and then free it."""
    size, length_s, phase = chance.uniform(20, 2000) * MB, chance.uniform(2, 30), chance.random()
    return lambda at_s: size * ((at_s / length_s + phase) % 1)


def validations(chance: random.Random) -> Curve:
    """Validate now and then, which needs memory while it lasts."""
    size, every_s, length_s = (
        chance.uniform(50, 1000) * MB,
        chance.uniform(20, 100),
        chance.uniform(2, 15),
    )
    phase_s = chance.uniform(0, every_s)
    return lambda at_s: size if (at_s + phase_s) % every_s < length_s else 0.0


def jump(chance: random.Random) -> Curve:
    """Allocate once."""
    size, begin_s = chance.uniform(20, 4000) * MB, chance.uniform(0, 120)
    return lambda at_s: size if at_s >= begin_s else 0.0


def jumps(chance: random.Random) -> Curve:
    """Allocate a few times."""
    steps = [
        (chance.uniform(0, 90), chance.uniform(20, 400) * MB) for _ in range(chance.randint(2, 7))
    ]
    return lambda at_s: sum(size for begin_s, size in steps if at_s >= begin_s)


def workers(chance: random.Random) -> Curve:
    """Start workers one after the other, and keep something for each."""
    count, every_s, begin_s = chance.randint(2, 16), chance.uniform(0.3, 2), chance.uniform(0, 20)
    size = chance.uniform(5, 60) * MB
    return lambda at_s: size * min(max(int((at_s - begin_s) / every_s), 0), count)


def activations(chance: random.Random) -> Curve:
    """Need memory within a step, seen at any moment of it."""
    size = chance.uniform(50, 1000) * MB
    return lambda at_s: size * chance.random()


def fragments(chance: random.Random) -> Curve:
    """Walk within bounds, as an allocator whose holes come and go."""
    step, bound = chance.uniform(0.5, 20) * MB, chance.uniform(3, 8)
    place = [0.0]

    def walk(at_s: float) -> float:
        place[0] += chance.gauss(0, 1)
        if abs(place[0]) > bound:
            place[0] = math.copysign(2 * bound - abs(place[0]), place[0])
        return step * place[0]

    return walk


STEADY: Mapping[str, Kind] = {
    kind.__name__: kind
    for kind in (
        still, warming, filling, epochs, validations, jump, jumps, workers, activations, fragments,
    )
}  # fmt: skip


def curve(
    kind: Kind, seed: str, seconds: int, leak_bytes_per_s: float = 0.0, noise: float = 1 * MB
) -> list[float]:
    """Return a value a second of a process of this kind that leaks besides."""
    chance = random.Random(seed)
    of_kind, base = kind(chance), chance.uniform(0.3, 8) * 1e9
    start_s, start = chance.uniform(1, 10), chance.uniform(100, 1000) * MB
    return [
        base
        + of_kind(at_s)
        + leak_bytes_per_s * at_s
        + (chance.gauss(0, noise) if noise else 0.0)
        - start * max(1 - at_s / start_s, 0.0)
        for at_s in range(seconds)
    ]
