"""In which phases the idle time of GPUs lies: bounds for any program, and an estimate where readings can tell.

A reading is a mean over a period: it says how long the GPU was idle, not when. With the idle share g, in a period of
which the thread spent the share p in a phase, the idle time in that phase is between max(0, g + p - 1) and min(g, p).
Both are summed over the readings. Shares of a phase are sampled, and what chance does to the sums is added; over
several readings together that is less. Each grouping bounds the truth, so the tightest one counts.

Where phases take different parts of different readings, these tell more: least squares give the part of each phase for
which the GPU is idle. Errors of shares would draw all parts to one value, so they are taken out of the sums. Blocks of
readings, drawn again and again, give the interval. As no phase has one constant part, readings in pairs have to agree.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import msgspec

from profd.daemon.analyze.confidence import CONFIDENCE_95
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.stepfunction import StepFunction

State = TypeVar("State", bound=Hashable)

_LEAST_COVERED = 0.9  # a reading of which less was sampled says nothing of what ran in it
_CLOCK_ERROR_NS = 5 * MILLISECOND_NS  # so far the driver's times may be off from those of samples
_TOGETHER = (1, 2, 4, 8, 16, 32, 64)
# What chance costs at a corner of the bounds falls with the distance from it, which is only known with the same error.
_CHANCE = 2.0
_BLOCKS, _DRAWS = 20, 100
_FEWEST = 160
_LEAST_SHARE = 0.02  # phases with less of the time count as one in an estimate
_WIDEST = 0.02  # estimates whose interval reaches further each way are not told
_SINGULAR = 1e-6


class IdleShare(msgspec.Struct, frozen=True):
    """The share of the GPUs' idle time that lies in a phase or at a line: between ``low`` and ``high``.

    ``estimate`` is its likeliest value, in ``estimate_low`` to ``estimate_high`` (95 %); None where readings cannot
    tell.
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
    changes: list[tuple[State, State]] = field(default_factory=list)


class _Normal(NamedTuple):
    """The normal equations of some readings, the shares of each state added up, and the idle shares."""

    square: list[list[float]]
    product: list[float]
    spent: list[float]
    idle: float


class IdleTime(Generic[State]):
    """Readings of GPUs beside the states of threads; ``add`` each thread by itself."""

    def __init__(self) -> None:
        self._readings: list[Reading[State]] = []
        self._error_ns2 = 0.0

    def add(self, utilization: StepFunction, rows: Sequence[IntervalRow], state_of: Callable[[int], State]) -> None:
        """Take in intervals of one thread, in order of time, and how busy its GPUs were; ``state_of`` is by stack."""
        samples = sum(row.samples for row in rows)
        if not samples:
            return
        # A change shows with the next sample: on average one distance of samples late, and that is its error too.
        late_ns = sum(row.duration_ns for row in rows) // samples
        self._error_ns2 = max(self._error_ns2, float(late_ns**2))
        steps, at = utilization.steps, 0
        found: dict[int, Reading[State]] = {}
        before: State | None = None
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
                    found[place].changes.append((before, state))
                place += 1
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
        for together in (*_TOGETHER, len(self._readings)):
            for state, (low, high) in self._bounds(self._grouped(together), states, whole_ns).items():
                bounds[state] = max(bounds[state][0], min(low, 1.0)), min(bounds[state][1], max(high, 0.0))
        found = {state: IdleShare(low, high) for state, (low, high) in bounds.items()}
        return dict(sorted(found.items(), key=lambda each: (-each[1].high - each[1].low, str(each[0]))))

    def shares(self) -> dict[State, IdleShare]:
        """Return the share of the idle time by state, those that may have most first; nothing where none is known."""
        found = self.bounds()
        alone, in_pairs = (self._estimates(1), self._estimates(2)) if found else ({}, {})
        for state, share in found.items():
            if (one := alone.get(state)) and (other := in_pairs.get(state)):
                least, most = max(share.low, min(one[1], other[1])), min(share.high, max(one[2], other[2]))
                if 0 <= most - least <= 2 * _WIDEST:
                    found[state] = IdleShare(share.low, share.high, min(max(one[0], least), most), least, most)
        return found

    def _grouped(self, together: int) -> list[Reading[State]]:
        if together == 1:
            return self._readings
        return [_together(self._readings[at : at + together]) for at in range(0, len(self._readings), together)]

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
            seen = Counter(state for change in one.changes for state in change)
            changes.update(seen)
            covered_ns = one.spent_ns.total()
            for state, spent_ns in one.spent_ns.items():
                share, error = spent_ns / covered_ns, self._error(one, 1 + seen[state])
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

    def _estimates(self, together: int) -> dict[State, tuple[float, float, float]]:
        """Return the likeliest idle share of states, and from where to where chance takes it, by groups of readings."""
        groups = self._grouped(together)
        if len(groups) < _FEWEST:
            return {}
        spent_ns = _together(groups).spent_ns
        least_ns = _LEAST_SHARE * spent_ns.total()
        places = {state: at for at, state in enumerate(state for state in spent_ns if spent_ns[state] >= least_ns)}
        cuts = [len(groups) * at // _BLOCKS for at in range(_BLOCKS + 1)]
        blocks = [self._normal(groups[cuts[at] : cuts[at + 1]], places) for at in range(_BLOCKS)]
        generator = random.Random(0)
        told = _solved(blocks)
        draws = [_solved(generator.choices(blocks, k=_BLOCKS)) for _ in range(_DRAWS)]
        if told is None or None in draws:
            return {}
        found = {}
        for state, at in places.items():
            values = sorted(draw[at] for draw in draws if draw)
            found[state] = told[at], values[_DRAWS // 40], values[-1 - _DRAWS // 40]
        return found

    def _normal(self, readings: Iterable[Reading[State]], places: dict[State, int]) -> _Normal:
        """Return the normal equations, without what errors of shares add; the last unknown is all other states."""
        rest = len(places)
        square = [[0.0] * (rest + 1) for _ in range(rest + 1)]
        product, spent, idle = [0.0] * (rest + 1), [0.0] * (rest + 1), 0.0
        for one in readings:
            covered_ns = one.spent_ns.total()
            shares: defaultdict[int, float] = defaultdict(float)
            for state, spent_ns in one.spent_ns.items():
                shares[places.get(state, rest)] += spent_ns / covered_ns
            for at, share in shares.items():
                product[at] += share * one.idle
                spent[at] += share
                for other, its in shares.items():
                    square[at][other] += share * its
            error = self._error_ns2 / one.length_ns**2
            for left, entered in one.changes:
                before, after = places.get(left, rest), places.get(entered, rest)
                square[before][before] -= error
                square[after][after] -= error
                square[before][after] += error
                square[after][before] += error
            idle += one.idle
        return _Normal(square, product, spent, idle)


def _together(readings: Sequence[Reading[State]]) -> Reading[State]:
    length_ns = sum(one.length_ns for one in readings)
    whole: Reading[State] = Reading(sum(one.idle * one.length_ns for one in readings) / length_ns, length_ns)
    for one in readings:
        whole.spent_ns.update(one.spent_ns)
        whole.changes += one.changes
    return whole


def _overlap_ns(one: Reading[State], share: float, error: float) -> float:
    """Return how much of a reading is at most idle and in a state, whose share of it has a standard error."""
    distance = abs(share - one.idle) / error
    density, beyond = math.exp(-(distance**2) / 2) / math.sqrt(2 * math.pi), math.erfc(distance / math.sqrt(2)) / 2
    chance = _CHANCE * error * (density - distance * beyond)
    return (min(one.idle, share) + min(chance, one.idle)) * one.length_ns


def _solved(blocks: Sequence[_Normal]) -> list[float] | None:
    """Return the share of the idle time of each unknown by some blocks of readings; None where they cannot tell."""
    spent = [sum(values) for values in zip(*(block.spent for block in blocks), strict=True)]
    size = len(spent) if spent[-1] else len(spent) - 1  # all states may have an unknown of their own
    square = [[sum(block.square[row][column] for block in blocks) for column in range(size)] for row in range(size)]
    right = [sum(block.product[row] for block in blocks) for row in range(size)]
    idle = sum(block.idle for block in blocks)
    for row in range(size):  # by elimination, without exchanges: the matrix has to be positive definite
        if square[row][row] <= _SINGULAR * spent[row] or not idle:
            return None
        for below in range(row + 1, size):
            factor = square[below][row] / square[row][row]
            right[below] -= factor * right[row]
            for column in range(row, size):
                square[below][column] -= factor * square[row][column]
    parts = [0.0] * size
    for row in reversed(range(size)):
        known = sum(square[row][column] * parts[column] for column in range(row + 1, size))
        parts[row] = (right[row] - known) / square[row][row]
    return [part * time / idle for part, time in zip(parts, spent, strict=False)]
