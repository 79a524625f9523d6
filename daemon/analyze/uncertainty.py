"""How sure a share of time is, from the samples that it rests on.

py-spy samples at Poisson intervals, and a sample stands for the time up to the next one. Where stacks change faster
than samples come, those times vary as much as their mean, so that a share has twice the variance that counts would
give it; where stacks last for many samples it has less. The larger is taken for all: docs/decisions.md has figures.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

VARIANCE_TO_COUNTS = 2.0
CONFIDENCE_95 = 1.96


def standard_error(share: float, samples: float) -> float:
    """Return the standard error of a share of time, 0 to 1, that was found with so many samples in all."""
    if samples <= 1:
        return 1.0
    # Seen always or never, a share is still no surer than half a sample.
    bounded = min(max(share, 0.5 / samples), 1 - 0.5 / samples)
    return math.sqrt(VARIANCE_TO_COUNTS * bounded * (1 - bounded) / samples)


def is_hint(share: float, error: float) -> bool:
    """Say whether the 95 % interval of a share is wider than the share itself: then it says next to nothing."""
    return 2 * CONFIDENCE_95 * error > share


class Evidence:
    """Samples and time of threads, whose samples stand for different times where their rates do."""

    __slots__ = ("_samples", "_time_ns")

    def __init__(self) -> None:
        self._samples: Counter[int] = Counter()
        self._time_ns: defaultdict[int, float] = defaultdict(float)

    def add(self, thread: int, samples: int, time_ns: float) -> None:
        """Count samples of a thread, and the time that they stand for."""
        self._samples[thread] += samples
        self._time_ns[thread] += time_ns

    def effective_samples(self) -> float:
        """Return how many samples of equal weight would tell a share as exactly (Kish's effective sample size)."""
        whole = sum(self._time_ns.values())
        squares = sum(self._time_ns[thread] ** 2 / samples for thread, samples in self._samples.items() if samples)
        return whole**2 / squares if squares else 0.0
