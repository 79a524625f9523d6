"""In which phases the idle time of GPUs lies: bounds for any program, and an estimate where that is close.

A reading is a mean over a period: it says how long the GPU was idle, not when. With the idle share g, in a period of
which the thread spent the share p in a phase, the idle time in that phase is between max(0, g + p - 1) and min(g, p).
Both are summed over the readings. Shares of a phase are sampled, and what chance does to the sums is added; over
several readings together that is less. Each grouping bounds the truth, so the tightest one counts.

Gaps shorter than readings leave these bounds wide, and readings of short steps are all alike, so that no statistics
of them tell more (docs/decisions-measurements.md). What CUDA promises does: a thread that waits for the GPU goes on
when its queue is empty. So the GPU is idle from there to the first phase that may start something on it. What the
readings have beyond that time lies in all other phases.
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
_CLOCK_ERROR_NS = 5 * MILLISECOND_NS  # so far the driver's times may be off from those of samples
_DOUBLED = (2,) * 6  # readings one by one, then of each two groups one, up to 64 readings together, then all
# What chance costs at a corner of the bounds falls with the distance from it, which is only known with the same error.
_CHANCE = 2.0
_NEARLY_ALL = 0.75
_WIDEST = 0.03  # estimates that may be further off are not told


class Queue(enum.Enum):
    """What a stack tells of the GPU's queue."""

    RUNS_DRY = "the thread waits until it is empty, and the GPU works until then"
    STAYS = "the thread starts nothing on the GPU"


class IdleShare(msgspec.Struct, frozen=True):
    """The share of the GPUs' idle time that lies in a phase or at a line: between ``low`` and ``high``.

    ``estimate`` is its likeliest value, in ``estimate_low`` to ``estimate_high`` (95 %), where nothing else starts work
    on these GPUs; None where that is not known within three points.
    """

    low: float
    high: float
    estimate: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None


@dataclass
class Reading(Generic[State]):
    """The idle share of ``length_ns``, and the time that a thread spent in each state meanwhile."""

    idle: float
    length_ns: int
    spent_ns: Counter[State] = field(default_factory=Counter)
    changes: Counter[State] = field(default_factory=Counter)


class IdleTime(Generic[State]):
    """Readings of GPUs beside the states of threads; ``add`` each thread by itself."""

    def __init__(self) -> None:
        self._readings: list[Reading[State]] = []
        self._error_ns2 = 0.0
        # By state, and what the queue tells there: the time, and how often it was entered. With STAYS the GPU idles,
        # with RUNS_DRY it works, with None nobody knows.
        self._spent_ns: Counter[tuple[State, Queue | None]] = Counter()
        self._visits: Counter[tuple[State, Queue | None]] = Counter()

    def add(
        self,
        utilization: StepFunction,
        rows: Sequence[IntervalRow],
        state_of: Callable[[int], State],
        queue_of: Callable[[int], Queue | None] = lambda stack: None,
    ) -> None:
        """Take in intervals of one thread, in order of time, and how busy its GPUs were.

        ``state_of`` and ``queue_of`` are by stack.
        """
        samples = sum(row.samples for row in rows)
        if not samples:
            return
        # A change shows with the next sample: on average one distance of samples late, and that is its error too.
        late_ns = sum(row.duration_ns for row in rows) // samples
        self._error_ns2 = max(self._error_ns2, float(late_ns**2))
        steps, at = utilization.steps, 0
        found: dict[int, Reading[State]] = {}
        before: State | None = None
        known: Queue | None = None
        for row in rows:
            state, start_ns, end_ns = state_of(row.stack), row.start_ns - late_ns, row.end_ns - late_ns
            while at < len(steps) and steps[at].end_ns <= start_ns:
                at += 1
            place = at
            while place < len(steps) and steps[place].start_ns < end_ns:
                step = steps[place]
                if place not in found:
                    found[place] = Reading(1 - step.value, step.end_ns - step.start_ns)
                found[place].spent_ns[state] += min(end_ns, step.end_ns) - max(start_ns, step.start_ns)
                if before is not None and before != state and step.start_ns <= start_ns:
                    found[place].changes.update((before, state))
                place += 1
            queue, key = queue_of(row.stack), (before, known)
            known = None if queue is Queue.STAYS and known is None else queue
            self._spent_ns[state, known] += row.duration_ns
            self._visits[state, known] += (state, known) != key
            before = state
        read = (one for one in found.values() if one.length_ns)
        self._readings += (one for one in read if one.spent_ns.total() >= _LEAST_COVERED * one.length_ns)

    def bounds(self) -> dict[State, IdleShare]:
        """Return the bounds of ``shares`` alone, which take less time than estimates."""
        whole_ns = sum(one.idle * one.length_ns for one in self._readings)
        if whole_ns <= 0:
            return {}
        states = {state for one in self._readings for state in one.spent_ns}
        bounds: defaultdict[State, tuple[float, float]] = defaultdict(lambda: (0.0, 1.0))
        groups: Sequence[Reading[State]] = self._readings
        for size in (1, *_DOUBLED, len(groups)):
            if size > 1:
                groups = [_together(groups[at : at + size]) for at in range(0, len(groups), size)]
            for state, (low, high) in self._bounds(groups, states, whole_ns).items():
                bounds[state] = max(bounds[state][0], min(low, 1.0)), min(bounds[state][1], max(high, 0.0))
        found = {state: IdleShare(low, high) for state, (low, high) in bounds.items()}
        return dict(sorted(found.items(), key=lambda each: (-each[1].high - each[1].low, str(each[0]))))

    def shares(self) -> dict[State, IdleShare]:
        """Return the share of the idle time by state, those that may have most first; nothing where none is known."""
        found = self.bounds()
        reaches = self._by_queue(found)
        all_least, all_most = (sum(one[at] for one in reaches.values()) for at in (0, 1))
        for state, (low, high) in reaches.items():  # all states together have all of it
            least, most = sorted((max(low, 1 - all_most + high), min(high, 1 - all_least + low)))
            if most - least <= 2 * _WIDEST:
                share = found[state]
                found[state] = IdleShare(share.low, share.high, (least + most) / 2, least, most)
        return found

    def _by_queue(self, bounds: Mapping[State, IdleShare]) -> dict[State, tuple[float, float]]:
        """Return from where to where the idle share of each state reaches by its bounds and by what the queue tells."""
        whole_ns = sum(one.idle * one.length_ns for one in self._readings)
        sampled_ns = self._spent_ns.total()
        if not sampled_ns or not bounds:
            return {}
        spent_ns, visits = self._spent_ns.copy(), self._visits.copy()
        for state in bounds:
            idle, unknown = (state, Queue.STAYS), (state, None)
            if spent_ns[idle] >= _NEARLY_ALL * (spent_ns[idle] + spent_ns[unknown]):  # short waits lack a sample
                spent_ns[idle] += spent_ns.pop(unknown, 0)
                visits[idle] += visits.pop(unknown, 0)
        scale = sum(one.length_ns for one in self._readings) / sampled_ns / whole_ns

        def part(*keys: tuple[State, Queue | None]) -> tuple[float, float]:
            """Return the time of some states as a part of the idle time, and its error."""
            time_ns = sum(spent_ns[key] for key in keys)
            # One distance of samples at each begin and end, and no more than that of the samples one by one.
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
            (idle_part, own), (unknown_part, error) = part((state, Queue.STAYS)), part((state, None))
            least = idle_part - own + max(rest - around - (all_unknown - unknown_part), 0.0)
            most = idle_part + own + min(max(rest, 0.0) + around, unknown_part + error)
            found[state] = max(share.low, min(least, share.high)), min(share.high, max(most, share.low))
        return found

    def _bounds(
        self, groups: Sequence[Reading[State]], states: Iterable[State], whole_ns: float
    ) -> dict[State, tuple[float, float]]:
        """Return from where to where the idle share of each state reaches by some groups of readings."""
        # Where a state was not seen it may have been between two samples.
        absent_ns = [_overlap_ns(one, 0.0, self._error(one, 1)) for one in groups]
        only_ns = [_overlap_ns(one, 1.0, self._error(one, 1)) for one in groups]
        most_ns, others_ns = dict.fromkeys(states, sum(absent_ns)), dict.fromkeys(states, sum(only_ns))
        changes: Counter[State] = Counter()
        for one, without_it_ns, with_it_ns in zip(groups, absent_ns, only_ns, strict=True):
            changes.update(one.changes)
            covered_ns = one.spent_ns.total()
            for state, spent_ns in one.spent_ns.items():
                share, error = spent_ns / covered_ns, self._error(one, 1 + one.changes[state])
                most_ns[state] += _overlap_ns(one, share, error) - without_it_ns
                others_ns[state] += _overlap_ns(one, 1 - share, error) - with_it_ns
        found = {}
        for state in states:
            around_ns = CONFIDENCE_95 * math.sqrt((1 + changes[state]) * self._error_ns2)
            found[state] = 1 - (others_ns[state] + around_ns) / whole_ns, (most_ns[state] + around_ns) / whole_ns
        return found

    def _error(self, one: Reading[State], changes: int) -> float:
        """Return the standard error of the share of a state that begins or ends so often within a reading."""
        return math.sqrt(changes * (self._error_ns2 + _CLOCK_ERROR_NS**2)) / one.length_ns


def _together(readings: Sequence[Reading[State]]) -> Reading[State]:
    length_ns = sum(one.length_ns for one in readings)
    whole: Reading[State] = Reading(sum(one.idle * one.length_ns for one in readings) / length_ns, length_ns)
    for one in readings:
        whole.spent_ns.update(one.spent_ns)
        whole.changes.update(one.changes)
    return whole


def _overlap_ns(one: Reading[State], share: float, error: float) -> float:
    """Return how much of a reading is at most idle and in a state, whose share of it has a standard error."""
    distance = abs(share - one.idle) / error
    if distance > 8:  # chance adds less than 1e-15 of the error there
        return min(one.idle, share) * one.length_ns
    density, beyond = math.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi), math.erfc(distance / math.sqrt(2)) / 2
    chance = _CHANCE * error * (density - distance * beyond)
    return (min(one.idle, share) + min(chance, one.idle)) * one.length_ns
