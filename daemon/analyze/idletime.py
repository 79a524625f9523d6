"""In which phases the idle time of GPUs lies: bounds for any program, and a close estimate or none.

A reading is a mean over a period: it says how long the GPU was idle, not when. With the idle share
g, in a period of which the thread spent the share p in a phase, the idle time in that phase is
between max(0, g + p - 1) and min(g, p). Both are summed over the readings. Shares of a phase are
sampled, and what chance does to the sums is added; over several readings together that is less.
Each grouping bounds the truth, so the tightest one counts.

Gaps shorter than readings leave these bounds wide, and readings of short steps are all alike, so
that no statistics of them tell more (docs/decisions-measurements.md). But CUDA promises that a
thread that waits for the GPU goes on when its queue is empty. So the GPU is idle from there to the
first phase that may start work on it. The rest of the idle time lies in all other phases.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from profd.daemon.analyze.confidence import CONFIDENCE_95
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.stepfunction import StepFunction

State = TypeVar("State", bound=Hashable)

_LEAST_COVERED = 0.9  # a reading of which less was sampled says nothing of what ran in it
_CLOCK_ERROR_NS = 5 * MILLISECOND_NS  # between the driver's times and those of samples
_DOUBLED = (2,) * 6  # groups of one reading, of two, up to 64, then all readings
_PERCENT = 0.0101  # drivers say whole percents, and 99 if a GPU is never idle (seen on an H200)
# The cost of chance at a corner of the bounds falls with the distance from it, which is only known
# with the same error.
_CHANCE = 2.0
_WIDEST = 0.03  # estimates that may be further off are not shown


class Queue(enum.Enum):
    """What a stack tells of the GPU's queue."""

    RUNS_DRY = "the thread waits until it is empty, and the GPU works until then"
    STAYS = "the thread starts nothing on the GPU"


Place = tuple[State, Queue | None]


class IdleShare(msgspec.Struct, frozen=True):
    """The share of the GPUs' idle time in a phase or at a line, from ``low`` to ``high``.

    ``estimate`` is its likeliest value, in ``estimate_low`` to ``estimate_high`` (95 %), if nothing
    else starts work on these GPUs; None if it is not known within three points.
    """

    low: float
    high: float
    estimate: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None


@dataclass
class IdleReading(Generic[State]):
    """The idle share of ``length_ns``, and the time that a thread was in each state then.

    ``changes`` counts how often the thread entered or left each state.
    """

    idle: float
    length_ns: int
    spent_ns: Counter[State] = field(default_factory=Counter)
    changes: Counter[State] = field(default_factory=Counter)


class IdleTime(Generic[State]):
    """Readings of GPUs beside the states of threads; ``add`` each thread by itself."""

    def __init__(self) -> None:
        self._readings: list[IdleReading[State]] = []
        self._error_ns2 = 0.0
        # By state, and what the queue tells there: with STAYS the GPU idles, with RUNS_DRY it
        # works, with None it is unknown.
        self._spent_ns: Counter[Place[State]] = Counter()
        self._visits: Counter[Place[State]] = Counter()

    def add(
        self,
        utilization: StepFunction,
        rows: Sequence[IntervalRow],
        state_of: Callable[[int], State],
        queue_of: Callable[[int], Queue | None] = lambda stack: None,
    ) -> None:
        """Add intervals of one thread, in order of time, and how busy its GPUs were.

        ``state_of`` and ``queue_of`` are by stack.
        """
        samples = sum(row.samples for row in rows)
        if not samples:
            return
        # A change shows with the next sample: on average one distance of samples late, and that is
        # its error too.
        late_ns = sum(row.duration_ns for row in rows) // samples
        self._error_ns2 = max(self._error_ns2, float(late_ns**2))
        states = [state_of(row.stack) for row in rows]
        read = _read_beside(utilization, rows, states, late_ns)
        self._readings += (
            one for one in read if one.spent_ns.total() >= _LEAST_COVERED * one.length_ns
        )
        before: Place[State] | None = None
        known: Queue | None = None
        for row, state in zip(rows, states, strict=True):
            queue = queue_of(row.stack)
            known = None if queue is Queue.STAYS and known is None else queue
            now = state, known
            self._spent_ns[now] += row.duration_ns
            if now != before:
                self._visits[now] += 1
            before = now

    @property
    def _idle_ns(self) -> float:
        return sum(one.idle * one.length_ns for one in self._readings)

    def bounds(self) -> dict[State, IdleShare]:
        """Return only the bounds of ``shares``, which take less time than estimates."""
        whole_ns = self._idle_ns
        if whole_ns <= 0:
            return {}
        states = {state for one in self._readings for state in one.spent_ns}
        bounds: defaultdict[State, tuple[float, float]] = defaultdict(lambda: (0.0, 1.0))
        groups: Sequence[IdleReading[State]] = self._readings
        for size in (1, *_DOUBLED, len(groups)):
            if size > 1:
                groups = [_together(groups[at : at + size]) for at in range(0, len(groups), size)]
            for state, (low, high) in self._bounds(groups, states, whole_ns).items():
                bounds[state] = (
                    max(bounds[state][0], min(low, 1.0)),
                    min(bounds[state][1], max(high, 0.0)),
                )
        found = {state: IdleShare(low, high) for state, (low, high) in bounds.items()}
        return dict(
            sorted(found.items(), key=lambda each: (-each[1].high - each[1].low, str(each[0])))
        )

    def shares(self) -> dict[State, IdleShare]:
        """Return the share of the idle time by state if known, those that may have most first."""
        found = self.bounds()
        reaches = self._by_queue(found)
        all_least, all_most = (sum(one[at] for one in reaches.values()) for at in (0, 1))
        for state, (low, high) in reaches.items():  # all states together have all of it
            least, most = sorted((max(low, 1 - all_most + high), min(high, 1 - all_least + low)))
            if most - least <= 2 * _WIDEST:
                share = found[state]
                middle = min(max((least + most) / 2, share.low), share.high)
                found[state] = IdleShare(share.low, share.high, middle, least, most)
        return found

    def _by_queue(self, bounds: Mapping[State, IdleShare]) -> dict[State, tuple[float, float]]:
        """Return the range of each state's idle share by its bounds and what the queue tells."""
        sampled_ns = self._spent_ns.total()
        if not sampled_ns or not bounds:
            return {}
        spent_ns, visits = self._spent_ns.copy(), self._visits.copy()
        for state in bounds:
            idle, unknown = (state, Queue.STAYS), (state, None)
            # Short waits lack a sample.
            if spent_ns[idle] >= 0.75 * (spent_ns[idle] + spent_ns[unknown]):
                spent_ns[idle] += spent_ns.pop(unknown, 0)
                visits[idle] += visits.pop(unknown, 0)
        scale = sum(one.length_ns for one in self._readings) / sampled_ns / self._idle_ns

        def part(*keys: tuple[State, Queue | None]) -> tuple[float, float]:
            """Return the time of some states as a part of the idle time, and its error."""
            time_ns = sum(spent_ns[key] for key in keys)
            # One distance of samples at each begin and end, and no more than that of the samples
            # one by one.
            samples = time_ns * (1 - time_ns / sampled_ns) / math.sqrt(self._error_ns2)
            changes = min(2 * sum(visits[key] for key in keys), samples)
            return time_ns * scale, CONFIDENCE_95 * math.sqrt(changes * self._error_ns2) * scale

        all_idle, around = part(*(key for key in spent_ns if key[1] is Queue.STAYS))
        all_unknown, _ = part(*(key for key in spent_ns if key[1] is None))
        rest = 1 - all_idle
        if rest < -around:  # something else works on these GPUs
            return {}
        found = {}
        for state, share in bounds.items():
            idle_part, own = part((state, Queue.STAYS))
            unknown_part, error = part((state, None))
            least = idle_part - own + max(rest - around - (all_unknown - unknown_part), 0.0)
            most = idle_part + own + min(max(rest, 0.0) + around, unknown_part + error)
            found[state] = (
                max(share.low, min(least, share.high)),
                min(share.high, max(most, share.low)),
            )
        return found

    def _bounds(
        self, groups: Sequence[IdleReading[State]], states: Iterable[State], whole_ns: float
    ) -> dict[State, tuple[float, float]]:
        """Return the bounds of each state's idle share by some groups of readings."""
        error_ns2 = self._error_ns2 + _CLOCK_ERROR_NS**2
        most_ns, others_ns = dict.fromkeys(states, 0.0), dict.fromkeys(states, 0.0)
        changes = Counter[State]()
        all_absent_ns = all_only_ns = 0.0
        for one in groups:
            idle, length_ns, covered_ns = one.idle, one.length_ns, sum(one.spent_ns.values())
            counts = dict.fromkeys(one.spent_ns, 1)
            for state, count in one.changes.items():
                counts[state] = counts.get(state, 1) + count
                changes[state] += count
            # A state that was not seen may have been between two samples.
            error = math.sqrt(error_ns2) / length_ns
            absent, only = _overlap(idle, 0.0, error), _overlap(idle, 1.0, error)
            all_absent_ns += absent * length_ns
            all_only_ns += only * length_ns
            for state, spent_ns in one.spent_ns.items():
                # The standard error of the share, by how often the state begins or ends there.
                share = spent_ns / covered_ns
                error = math.sqrt(counts[state] * error_ns2) / length_ns
                most_ns[state] += (_overlap(idle, share, error) - absent) * length_ns
                others_ns[state] += (_overlap(idle, 1 - share, error) - only) * length_ns
        found = {}
        for state in most_ns:
            around_ns = CONFIDENCE_95 * math.sqrt((1 + changes[state]) * self._error_ns2)
            least_ns = all_only_ns + others_ns[state] + around_ns
            all_ns = all_absent_ns + most_ns[state] + around_ns
            found[state] = 1 - least_ns / whole_ns, all_ns / whole_ns
        return found


def _read_beside(
    utilization: StepFunction,
    rows: Sequence[IntervalRow],
    states: Sequence[State],
    late_ns: int,
) -> list[IdleReading[State]]:
    """Return the readings of utilization with what a thread did meanwhile.

    ``states`` are those of ``rows``, which show every change ``late_ns`` late.
    """
    steps, first = utilization.steps, 0
    found: dict[int, IdleReading[State]] = {}
    for row, before, state in zip(rows, (states[0], *states), states, strict=False):
        start_ns, end_ns = row.start_ns - late_ns, row.end_ns - late_ns
        while first < len(steps) and steps[first].end_ns <= start_ns:
            first += 1
        for at in range(first, len(steps)):
            step = steps[at]
            if step.start_ns >= end_ns:
                break
            if at not in found:
                idle = 1 - step.value
                length_ns = step.end_ns - step.start_ns
                found[at] = IdleReading(idle if idle > _PERCENT else 0.0, length_ns)
            reading = found[at]
            reading.spent_ns[state] += min(end_ns, step.end_ns) - max(start_ns, step.start_ns)
            if before != state and step.start_ns <= start_ns:
                reading.changes.update((before, state))
    return [one for one in found.values() if one.length_ns]


def _together(readings: Sequence[IdleReading[State]]) -> IdleReading[State]:
    length_ns = sum(one.length_ns for one in readings)
    whole: IdleReading[State] = IdleReading(
        sum(one.idle * one.length_ns for one in readings) / length_ns, length_ns
    )
    spent_ns, changes = whole.spent_ns, whole.changes
    for one in readings:  # no update(): done for each reading of a run
        for state, time_ns in one.spent_ns.items():
            spent_ns[state] = spent_ns.get(state, 0) + time_ns
        for state, count in one.changes.items():
            changes[state] = changes.get(state, 0) + count
    return whole


def _overlap(idle: float, share: float, error: float) -> float:
    """Return the largest part of a reading that is both idle and in a state.

    The state's share of the reading has a standard error.
    """
    distance = abs(share - idle) / error
    if distance > 8:  # chance adds less than 1e-15 of the error there
        return min(idle, share)
    density, beyond = math.exp(-(distance**2) / 2) / _NORMAL, math.erfc(distance / _SQRT_2) / 2
    return min(idle, share) + min(_CHANCE * error * (density - distance * beyond), idle)


_NORMAL, _SQRT_2 = math.sqrt(2 * math.pi), math.sqrt(2)
