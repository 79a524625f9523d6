"""Programs that go into a phase and out of it again, as samples at Poisson intervals see them."""

from __future__ import annotations

import random

from profd.daemon.analyze.steps import Seen
from profd.daemon.clock import SECOND_NS

RATE_HZ = 100


def sampled(
    cycles: int, outside_s: float, inside_s: float, jitter: float, seed: int, rate_hz: float = RATE_HZ
) -> list[Seen]:
    """Return what is seen of so many cycles, each part of which is longer or shorter by up to ``jitter``."""
    chance = random.Random(seed)
    found: list[Seen] = []
    part_from_s, sample_s = 0.0, chance.expovariate(rate_hz)
    for part in range(2 * cycles):
        is_inside = part % 2 == 1
        part_to_s = part_from_s + (inside_s if is_inside else outside_s) * chance.uniform(1 - jitter, 1 + jitter)
        first_s, samples = sample_s, 0
        while sample_s < part_to_s:
            samples += 1
            sample_s += chance.expovariate(rate_hz)
        if samples:
            found.append(Seen(int(first_s * SECOND_NS), is_inside))
        part_from_s = part_to_s
    return found


def evaluated(seed: int) -> tuple[list[Seen], int]:
    """Return what is seen of twelve epochs of 20 steps of 62 ms, and how long they take.

    After each comes an evaluation, long enough for four steps.
    """
    seen: list[Seen] = []
    at_ns, chance = 0, random.Random(seed)
    for _ in range(12):
        epoch = sampled(20, 0.035, 0.027, 0.1, chance.randrange(1 << 30))
        seen += (one._replace(start_ns=at_ns + one.start_ns) for one in epoch)
        at_ns += int(1.24 * SECOND_NS)
        seen.append(Seen(at_ns, is_inside=False))
        at_ns += SECOND_NS // 4
    return seen, at_ns


def held_up(cycles: int, share: float, seed: int) -> list[Seen]:
    """Return what is seen of steps of 55 ms in two parts, a share of which waits for a core for up to 0.1 s."""
    chance = random.Random(seed)
    found: list[Seen] = []
    to_s, sample_s = 0.0, chance.expovariate(RATE_HZ)
    for part in range(2 * cycles):
        to_s += (0.03, 0.025)[part % 2] * chance.uniform(0.95, 1.05)
        to_s += chance.uniform(0.02, 0.1) if chance.random() < share else 0.0
        first_s, samples = sample_s, 0
        while sample_s < to_s:
            samples += 1
            sample_s += chance.expovariate(RATE_HZ)
        if samples:
            found.append(Seen(int(first_s * SECOND_NS), part % 2 == 1))
    return found


def on_and_off(share: float, seed: int) -> list[Seen]:
    """Return what is seen of a phase that is on or off for random times, as when a machine is short of CPU."""
    chance = random.Random(seed)
    at_s, seen = 0.0, []
    for part in range(1000):
        length_s = chance.expovariate(10) * (share if part % 2 else 1 - share) * 2
        seen.append(Seen(int(at_s * SECOND_NS), part % 2 == 1))
        at_s += length_s
    return seen
