"""How sure a share of time is, from the changes of stacks that were seen.

py-spy samples at Poisson moments, and what a sample sees is taken to last until the next one. The
error of the time of a state, divided by the mean distance of samples, is then a martingale that
jumps by one at each change of the state that is seen, and its variance is the number of those
changes: whatever the rhythm of the program, and whether the state lasts for microseconds or minutes
(docs/decisions-measurements.md, 8). One change more may be under way at the end.

If reads fail all the time, what they would have shown is a guess, and the more of them fail in a
row the less is known. That error does not fall with time, because all the guesses err alike.

Between two samples it is unknown when a thread changed its stack: a change is seen late by the
distance of the next sample. What all changes of one state leave open adds up to its error;
``uncertainty`` says how. Threads of one process are read at the same moments, so changes at one
moment err together.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from profd.daemon.analyze.conditions import covers_of
from profd.daemon.analyze.selection import Selection, spread
from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow
from profd.daemon.timerange import TimeRange

Moment = tuple[tuple[int, int], ...]
"""The stack before and the stack after, of each thread that changed."""

LOOKED_AT_NS = 1200 * SECOND_NS  # of longer ranges so much is looked at interval by interval


class Reads(msgspec.Struct, frozen=True):
    """How many reads were due, and how many of them failed and so show nothing for sure."""

    failed: float = 0.0
    due: float = 0.0

    @property
    def failed_share(self) -> float:
        return min(self.failed / self.due, 1.0) if self.due else 0.0

    def __add__(self, other: Reads) -> Reads:
        return Reads(self.failed + other.failed, self.due + other.due)


NO_READS = Reads()


class TransitionsSeen(msgspec.Struct, frozen=True):
    """What changes leave open: ns² by moment, ``open_ns2`` of one not yet seen, reads then due."""

    squares: Mapping[Moment, float] = {}
    open_ns2: float = 0.0
    reads: Reads = NO_READS


def together(
    changes: Mapping[int, TransitionsSeen], weights: Mapping[int, float]
) -> TransitionsSeen:
    """Return the changes of processes as one, weighted by each process's time."""
    squares: defaultdict[Moment, float] = defaultdict(float)
    open_ns2, reads = 0.0, NO_READS
    for process, one in changes.items():
        weight = weights[process]
        for moment, square in one.squares.items():
            squares[moment] += square * weight**2
        open_ns2 += one.open_ns2 * weight**2
        reads += Reads(one.reads.failed * weight, one.reads.due * weight)
    return TransitionsSeen(squares, open_ns2, reads)


class Transitions:
    """The changes of some threads of one process: ``add`` their intervals in order of time."""

    def __init__(self) -> None:
        self._open_ns2 = 0.0  # of one change: the squared distance of samples, lately
        self._squares: defaultdict[Moment, float] = defaultdict(float)
        self._moments: Counter[Moment] = Counter()
        self._time_ns = self._samples = 0
        self._moment: list[tuple[int, int]] = []
        self._moment_ns = 0
        self._last: dict[int, tuple[int, int]] = {}

    def add(self, row: IntervalRow) -> None:
        stack, end_ns = self._last.get(row.thread, (row.stack, row.start_ns))
        self._last[row.thread] = (row.stack, row.start_ns + row.duration_ns)
        # After half a second without a stack, the thread was not recorded.
        if stack != row.stack and row.start_ns - end_ns < 500 * MILLISECOND_NS:
            # py-spy reads all threads for one sample, then stamps them one after the other.
            if row.start_ns - self._moment_ns > 500 * MICROSECOND_NS:
                self._end_moment()
                self._moment_ns = row.start_ns
            self._moment.append((stack, row.stack))
        self._time_ns += row.duration_ns
        self._samples += row.samples
        # More samples of each thread might hide a change of the rate, and so of their distance.
        if self._samples >= 50 * len(self._last):
            self._end_stretch()

    def take(self, times: float = 1.0, reads: Reads = NO_READS) -> TransitionsSeen:
        """Return what has changed since the last call, ``times`` as much for a part looked at."""
        self._end_stretch()
        taken = {moment: square * times for moment, square in self._squares.items()}
        self._squares.clear()
        return TransitionsSeen(taken, self._open_ns2 * times, reads)

    def forget_place(self) -> None:
        """Count no change for the next interval, because others before it were left out."""
        self._last.clear()

    def _end_moment(self) -> None:
        if self._moment:
            self._moments[tuple(self._moment)] += 1
            self._moment.clear()

    def _end_stretch(self) -> None:
        self._end_moment()
        if not self._samples:
            return
        self._open_ns2 = (self._time_ns / self._samples) ** 2
        for moment, times in self._moments.items():
            self._squares[moment] += times * self._open_ns2
        self._moments.clear()
        self._time_ns = self._samples = 0


def take_transitions(
    reader: RunReader,
    selection: Selection,
    threads: frozenset[int] | None = None,
    looked_at_ns: int | None = None,
) -> dict[int, TransitionsSeen]:
    """Return by process the changes of a selection's threads, in its time and conditions.

    ``threads`` are by default those of the selection. In long ranges only ``looked_at_ns``, evenly
    spread, is looked at and counts for all: by default twenty minutes, or with several processes
    five minutes of each, which show as much.
    """
    threads = selection.threads(reader) if threads is None else threads
    if not looked_at_ns:
        processes = len({reader.threads[thread].process for thread in threads})
        looked_at_ns = LOOKED_AT_NS // min(max(processes, 1), 4)
    whole = selection.time_in(reader)
    times = max(whole.length_ns / looked_at_ns, 1.0)
    slices = spread(whole, looked_at_ns) if times > 1 else [selection.time]
    found: defaultdict[int, Transitions] = defaultdict(Transitions)
    reads: defaultdict[int, Reads] = defaultdict(Reads)
    for part in slices:
        rows = list(reader.intervals(part, threads))
        sampled = TimeRange(rows[0].start_ns, max(row.end_ns for row in rows)) if rows else part
        covers = covers_of(reader, selection.when, threads, sampled)
        for row in rows:
            if not covers or covers[row.thread].between(row.start_ns, row.end_ns):
                found[reader.threads[row.thread].process].add(row)
        for changes in found.values():
            changes.forget_place()
        for total in reader.reads(part):
            reads[total.process] += Reads(total.failed, total.due)
    return {process: changes.take(times, reads[process]) for process, changes in found.items()}


State = TypeVar("State")

_GUESSED = 1.5
"""By how much guesses are off if all reads fail: the standard error of the log odds of a share.

It falls with the square of the share of failed reads, and was found with the known program of
restless code (docs/decisions-measurements.md, 17).
"""


class ShareVariance(Generic[State]):
    """How exactly the times of many states are known, of which several may hold at a time.

    ``states`` gives those of a thread in a stack: none if the stack is not selected.
    """

    def __init__(self, seen: TransitionsSeen, states: Callable[[int], frozenset[State]]) -> None:
        stacks = {stack for moment in seen.squares for change in moment for stack in change}
        self._known = {stack: states(stack) for stack in stacks}
        self._open_ns2, self._reads = seen.open_ns2, seen.reads
        self._own: defaultdict[State, float] = defaultdict(float)
        self._shared: defaultdict[State, float] = defaultdict(float)
        self._whole = 0.0
        known = self._known
        for moment, square in seen.squares.items():
            # Most moments change no state.
            if len(moment) > 1 or known[moment[0][0]] != known[moment[0][1]]:
                self._count(moment, square)

    def standard_error(self, state: State, share: float, whole_ns: float) -> float:
        """Return the standard error of a state's share of ``whole_ns``; 1 if nothing is known."""
        if not whole_ns or not self._open_ns2:
            return 1.0
        own, shared = self._own.get(state, 0.0), self._shared.get(state, 0.0)
        changed = own - 2 * share * shared + share**2 * self._whole
        guessed = _GUESSED * self._reads.failed_share**2 * share * (1 - share)
        return min(math.hypot(math.sqrt(changed + self._open_ns2) / whole_ns, guessed), 1.0)

    def _count(self, moment: Moment, square: float) -> None:
        """Count a moment's changes by how many more or fewer threads are in a state after it."""
        if len(moment) == 1:  # as nearly all: it takes less than half of the time so
            left, entered = map(self._known.__getitem__, moment[0])
            changed = left ^ entered
            for state in changed:
                self._own[state] += square
            if bool(left) != bool(entered):
                self._whole += square
                for state in changed:
                    self._shared[state] += square
            return
        net: Counter[State] = Counter()
        whole = 0
        for before, after in moment:
            left, entered = self._known[before], self._known[after]
            net.update(entered - left)
            net.subtract(left - entered)
            whole += bool(entered) - bool(left)
        self._whole += whole**2 * square
        for state, by in net.items():
            self._own[state] += by**2 * square
            self._shared[state] += by * whole * square
