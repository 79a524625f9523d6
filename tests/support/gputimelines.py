"""Makes training loops beside a GPU by chance: what samples and readings show of them, and the idle
time by phase.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from profd.daemon.analyze.idletime import Queue
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store.rows import IntervalRow, PointRow
from support import gpusim

RATE_HZ = 100
WAIT, COMPUTE, SYNCHRONIZE, LOG = range(4)
QUEUES = {WAIT: Queue.STAYS, LOG: Queue.STAYS, SYNCHRONIZE: Queue.RUNS_DRY}
"""What phases tell of the GPU's queue."""
PERIODS_MS = (20, 50, 100, 167, 200, 500, 1000)


class Kind(NamedTuple):
    """A kind of loop: its gaps and duty cycle, how far apart readings are and how far off their
    clock is.

    ``jitter`` is the deviation of the logarithm of lengths.
    """

    form: str
    gap_ms: float
    duty: float
    period_ms: float
    offset_ms: float
    jitter: float


class Timeline:
    """A main thread and the GPU that works off what it starts, in order."""

    def __init__(self, kind: Kind, seconds: float, chance: random.Random) -> None:
        self.end_ns = int(seconds * SECOND_NS)
        self._kind, self._chance = kind, chance
        self._at_ns = 0
        self.phases: list[tuple[int, int]] = []
        self._busy: list[tuple[int, int]] = []
        while self._at_ns < self.end_ns:
            self._step()
        self.phases.append((self._at_ns, LOG))
        self.gpu = gpusim.Timeline(
            (start_ns / SECOND_NS, end_ns / SECOND_NS) for start_ns, end_ns in self._busy
        )

    def idle(self, from_ns: float, to_ns: float) -> float:
        if to_ns <= from_ns:
            return 0.0
        return (to_ns - from_ns) * (1 - self.gpu.busy_share(from_ns / SECOND_NS, to_ns / SECOND_NS))

    def idle_by_phase(self) -> dict[int, float]:
        found: defaultdict[int, float] = defaultdict(float)
        for (start_ns, phase), (end_ns, _) in pairwise(self.phases):
            found[phase] += self.idle(min(start_ns, self.end_ns), min(end_ns, self.end_ns))
        return found

    def samples(self) -> list[IntervalRow]:
        """Return the intervals of a thread whose stacks are its phases, sampled at Poisson moments."""
        starts = [start_ns for start_ns, _ in self.phases]
        seen: list[tuple[int, int]] = []
        at_ns = self._chance.expovariate(RATE_HZ) * SECOND_NS
        while at_ns < self.end_ns:
            seen.append((int(at_ns), self.phases[bisect_right(starts, at_ns) - 1][1]))
            at_ns += self._chance.expovariate(RATE_HZ) * SECOND_NS
        return [
            IntervalRow(at, after - at, 1, phase, 1) for (at, phase), (after, _) in pairwise(seen)
        ]

    def readings(self) -> list[PointRow]:
        """Return the driver's means of utilization: whole percents, rounded down, and 99 or 100 of
        a busy GPU.

        So an H200 gave them (``tests/nvml/h200``).
        """
        found, before_ns, at_ns = (
            [],
            0.0,
            self._chance.random() * self._kind.period_ms * MILLISECOND_NS,
        )
        while at_ns < self.end_ns:
            busy = self.gpu.busy_share(before_ns / SECOND_NS, at_ns / SECOND_NS)
            value = math.floor(100 * min(busy * self._chance.uniform(0.999, 1.001), 1.0)) / 100
            found.append(PointRow(int(at_ns + self._kind.offset_ms * MILLISECOND_NS), value))
            before_ns = at_ns
            at_ns += self._kind.period_ms * MILLISECOND_NS
        return found

    def _step(self) -> None:
        gap_ms, busy_ms = (
            self._kind.gap_ms,
            self._kind.gap_ms * self._kind.duty / (1 - self._kind.duty),
        )
        if self._kind.form == "waits":  # and synchronizes each step
            self._stay(WAIT, gap_ms)
            self._start(busy_ms)
            self._stay(COMPUTE, busy_ms * 0.3)
            self._synchronize()
        elif self._kind.form == "starts slowly":
            for _ in range(4):
                self._start(busy_ms / 4)
                self._stay(COMPUTE, (busy_ms + gap_ms) / 4)
            self._stay(WAIT, 0.3 * gap_ms)
        elif self._kind.form == "all of it":
            self._stay(WAIT, 0.5 * gap_ms)
            self._start(busy_ms / 2)
            self._stay(COMPUTE, busy_ms / 2 + 0.2 * gap_ms)
            self._start(busy_ms / 2)
            self._synchronize()
            self._stay(LOG, 0.3 * gap_ms)
        else:  # runs ahead: the wait begins while the GPU works
            self._start(busy_ms)
            self._stay(COMPUTE, 0.3 * busy_ms)
            self._stay(WAIT, gap_ms + 0.7 * busy_ms)
        if self._chance.random() < 0.002:
            self._stay(LOG, 200)

    def _length_ns(self, mean_ms: float) -> int:
        return int(mean_ms * self._chance.lognormvariate(0, self._kind.jitter) * MILLISECOND_NS)

    def _stay(self, phase: int, mean_ms: float) -> None:
        self.phases.append((self._at_ns, phase))
        self._at_ns += self._length_ns(mean_ms)

    def _start(self, mean_ms: float) -> None:
        free_ns = self._busy[-1][1] if self._busy else 0
        start_ns = max(self._at_ns, free_ns)
        self._busy.append((start_ns, start_ns + self._length_ns(mean_ms)))

    def _synchronize(self) -> None:
        free_ns = self._busy[-1][1]
        if free_ns > self._at_ns:
            self.phases.append((self._at_ns, SYNCHRONIZE))
            self._at_ns = free_ns


FORMS = ("waits", "starts slowly", "all of it", "runs ahead")


def any_kind(chance: random.Random) -> Kind:
    """Return a kind of loop by chance, with gaps of 2 ms to 3 s."""
    return Kind(
        form=chance.choice(FORMS),
        gap_ms=math.exp(chance.uniform(math.log(2), math.log(3000))),
        duty=chance.choice((0.1, 0.3, 0.5, 0.7, 0.8, 0.9)),
        period_ms=chance.choice(PERIODS_MS),
        offset_ms=chance.uniform(-5, 5),
        jitter=chance.uniform(0, 0.5),
    )
