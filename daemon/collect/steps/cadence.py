"""When a counter is read next: as soon as is wished for, as far as the cost of readings allows. Pure.

Readings have a capital of CPU time to begin with, for the search, and a share of the time that goes by. So they cost no
more than 5 ms a second over the first minute, and 2 ms a second from then on, whatever one of them usually takes.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS

CAPITAL_S = 0.18
EARNED_SHARE = 0.002
# Routine leaves something over: for a search when the loop is gone, and for readings that come at the right moment.
ROUTINE_SHARE = 0.0015
RESERVE_S = 0.06
COSTS_KEPT = 5
# A reading that is torn may once cost ten times the usual: that is not held against the next ones for minutes.
MOST_DEBT_S = 0.05
# Readings at equal distances would see a loop that is in step with them at one and the same place.
JITTER = 0.4


class Wish(NamedTuple):
    """A reading that is wished for in ``pause_s``; one that is urgent may take what routine leaves alone.

    Where ``every_s`` is given, the moment matters, and a later one is as good only by multiples of that.
    """

    pause_s: float
    is_urgent: bool
    every_s: float = 0.0


class Cadence:
    """What readings have cost, and what they may."""

    def __init__(self, chance: random.Random | None = None) -> None:
        """Vary pauses by ``chance``."""
        self._chance = chance or random.Random()
        self._balance_s = CAPITAL_S
        self._at_ns: int | None = None
        self._costs: deque[float] = deque(maxlen=COSTS_KEPT)

    def spend(self, at_ns: int, cpu_ns: int) -> None:
        """Account for a reading that ended at a time."""
        self._earn(at_ns)
        self._balance_s = max(self._balance_s - cpu_ns / SECOND_NS, -MOST_DEBT_S)
        self._costs.append(cpu_ns / SECOND_NS)

    def pause_s(self, wish: Wish) -> float:
        """Return how long to wait, from the last reading on, before the next one."""
        cost_s = statistics.median(self._costs) if self._costs else 0.0
        affordable_s = (cost_s - self._balance_s) / EARNED_SHARE
        if not wish.is_urgent:
            saving_s = min((cost_s + RESERVE_S - self._balance_s) / EARNED_SHARE, cost_s / ROUTINE_SHARE)
            affordable_s = max(affordable_s, saving_s)
        if wish.every_s:
            return wish.pause_s + wish.every_s * math.ceil(max(affordable_s - wish.pause_s, 0.0) / wish.every_s)
        return max(wish.pause_s, affordable_s) * self._chance.uniform(1 - JITTER, 1 + JITTER)

    def _earn(self, at_ns: int) -> None:
        if self._at_ns is not None:
            self._balance_s += (at_ns - self._at_ns) / SECOND_NS * EARNED_SHARE
            self._balance_s = min(self._balance_s, CAPITAL_S)
        self._at_ns = at_ns
