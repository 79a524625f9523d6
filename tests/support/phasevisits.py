"""Programs that go into a phase and out of it again, as samples at Poisson intervals see them."""

from __future__ import annotations

import random

from profd.daemon.analyze.steps import Seen
from profd.daemon.clock import SECOND_NS

RATE_HZ = 100


def sampled(
    cycles: int,
    outside_s: float,
    inside_s: float,
    jitter: float,
    seed: int,
    rate_hz: float = RATE_HZ,
    waits: float = 0,
) -> list[Seen]:
    """Return what is seen of cycles whose parts vary by up to ``jitter``.

    A share ``waits`` for up to 0.1 s more.
    """
    chance = random.Random(seed)
    found: list[Seen] = []
    part_from_s, sample_s = 0.0, chance.expovariate(rate_hz)
    for part in range(2 * cycles):
        is_inside = part % 2 == 1
        part_to_s = part_from_s + (inside_s if is_inside else outside_s) * chance.uniform(
            1 - jitter, 1 + jitter
        )
        part_to_s += chance.uniform(0.02, 0.1) if waits and chance.random() < waits else 0.0
        first_s, samples = sample_s, 0
        while sample_s < part_to_s:
            samples += 1
            sample_s += chance.expovariate(rate_hz)
        if samples:
            found.append(Seen(int(first_s * SECOND_NS), is_inside))
        part_from_s = part_to_s
    return found


def held_up(cycles: int, share: float, seed: int) -> list[Seen]:
    """Return what is seen of steps of 55 ms in two parts.

    A share of them waits for a core for up to 0.1 s.
    """
    return sampled(cycles, 0.03, 0.025, 0.05, seed, waits=share)


def on_and_off(share: float, seed: int) -> list[Seen]:
    """Return what is seen of a phase that is on or off for random times, as when a machine is short
    of CPU.
    """
    chance = random.Random(seed)
    at_s, seen = 0.0, []
    for part in range(1000):
        length_s = chance.expovariate(10) * (share if part % 2 else 1 - share) * 2
        seen.append(Seen(int(at_s * SECOND_NS), part % 2 == 1))
        at_s += length_s
    return seen
