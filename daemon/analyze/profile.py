"""The time of each stack in a selection, its intervals in order, and the call tree.

A share is one of time. Samples are the evidence that it rests on, and no measure of it: a stretch that was sampled
faster has more of them, and of a process that is sampled in turns with others there are fewer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from profd.daemon.analyze.conditions import covers_of, within
from profd.daemon.analyze.coverage import Lives, take_lives
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.uncertainty import TransitionsSeen, take_transitions, together
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Rest, StackMinuteRow
from profd.daemon.store.rows import IntervalRow, StackTotal
from profd.daemon.store.stepfunction import IDLE_BELOW, samples_inside


def selected_intervals(
    reader: RunReader, selection: Selection, threads: frozenset[int], phases: PhaseIndex | None = None
) -> Iterator[IntervalRow]:
    """Yield what a selection takes of the intervals of some threads, those that start first first.

    An interval in which its conditions held now and then comes in parts, the first with the samples of all.
    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    index = None if selection.phase is None else phases or PhaseIndex(reader)
    covers = covers_of(reader, selection.when, threads, within(selection.from_ns, selection.to_ns))
    for interval in reader.intervals(selection.from_ns, selection.to_ns, threads):
        if index is not None and index.of_stack(interval.stack) != selection.phase:
            continue
        if not covers:
            yield interval
            continue
        parts = list(covers[interval.thread].ranges_between(interval.start_ns, interval.end_ns))
        samples = samples_inside(interval.samples, interval.duration_ns, sum(end - start for start, end in parts))
        for number, (start_ns, end_ns) in enumerate(parts):
            seen = 0 if number else samples
            yield IntervalRow(start_ns, end_ns - start_ns, interval.thread, interval.stack, seen)


def selected_totals(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> list[StackTotal]:
    """Return what was seen of a selection by thread and stack; ``phases`` is made where it is needed and not given."""
    threads = selection.threads(reader)
    if not threads:
        return []
    if selection.when:
        totals = _totals_while(reader, msgspec.structs.replace(selection, phase=None), threads)
    else:
        totals = reader.totals(selection.from_ns, selection.to_ns, threads)
    if selection.phase is None:
        return totals
    index = phases or PhaseIndex(reader)
    return [total for total in totals if index.of_stack(total.stack) == selection.phase]


def parts_while(parts: Iterable[Iterable[Condition]]) -> Callable[[StackMinuteRow], tuple[int, ...]]:
    """Return what gives the samples and the time of a sum for each of some parts, all in one row.

    A part is conditions that hold together; the sums have some of them.
    """
    return attrgetter(*(name for part in parts for name in _PARTS[frozenset(one.name for one in part)]))


_PARTS: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset(): ("samples", "duration_ns"),
    frozenset({"gpu-idle"}): ("idle_samples", "idle_ns"),
    frozenset({"on-cpu"}): ("cpu_samples", "cpu_ns"),
    frozenset({"gpu-idle", "on-cpu"}): ("both_samples", "both_ns"),
}


def _totals_while(reader: RunReader, selection: Selection, threads: frozenset[int]) -> list[StackTotal]:
    time_ns: defaultdict[tuple[int, int], int] = defaultdict(int)
    samples: Counter[tuple[int, int]] = Counter()
    rests = [Rest(threads, selection.from_ns, selection.to_ns)]
    if all(one.name == "on-cpu" or one == Condition("gpu-idle", IDLE_BELOW) for one in selection.when):
        part = parts_while([selection.when])
        sums, rests = reader.rollups.sums(selection.from_ns, selection.to_ns, threads)
        for minute in sums:
            seen, spent_ns = part(minute)
            if seen or spent_ns:
                time_ns[minute.thread, minute.stack] += spent_ns
                samples[minute.thread, minute.stack] += seen
    for rest in rests:
        for row in selected_intervals(reader, selection.between(rest.from_ns, rest.to_ns), rest.threads):
            time_ns[row.thread, row.stack] += row.duration_ns
            samples[row.thread, row.stack] += row.samples
    return [StackTotal(*key, samples[key], spent_ns) for key, spent_ns in time_ns.items()]


class Profile(msgspec.Struct, frozen=True):
    """By stack id: the samples, and the time that they stand for in the threads selected.

    ``changes`` are those of the threads from stack to stack, selected or not: they show how exact the times are.
    """

    samples: dict[int, int] = {}
    time_ns: dict[int, float] = {}
    changes: TransitionsSeen = TransitionsSeen()

    @property
    def total_samples(self) -> int:
        return sum(self.samples.values())

    @property
    def total_ns(self) -> float:
        """The sum of the times: thread time, so that two threads have two seconds each second."""
        return sum(self.time_ns.values())


def take_profile(
    reader: RunReader,
    selection: Selection,
    phases: PhaseIndex | None = None,
    changes: Mapping[int, TransitionsSeen] | None = None,
) -> Profile:
    """Add up the time of a selection by stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given. ``changes`` are what
    ``take_transitions`` gives for the selection, where that is known already.
    """
    totals = selected_totals(reader, selection, phases)
    if not totals:
        return Profile()
    weights = process_weights(reader, take_lives(reader), selection.from_ns, selection.to_ns)
    return weighted(reader, totals, take_transitions(reader, selection) if changes is None else changes, weights)


def process_weights(
    reader: RunReader, lives: Lives, from_ns: int | None = None, to_ns: int | None = None
) -> dict[int, float]:
    """Return by process what time a second of its recordings stands for."""
    return {process: lives.weight(process, from_ns, to_ns) for process in reader.processes}


def weighted(
    reader: RunReader,
    totals: Iterable[StackTotal],
    changes: Mapping[int, TransitionsSeen],
    weights: Mapping[int, float],
) -> Profile:
    """Return the profile of what was seen by thread and stack; changes and weights are by process."""
    samples: Counter[int] = Counter()
    time_ns: defaultdict[int, float] = defaultdict(float)
    for total in totals:
        spent_ns = total.duration_ns * weights[reader.threads[total.thread].process]
        samples[total.stack] += total.samples
        time_ns[total.stack] += spent_ns
    return Profile(dict(samples), dict(time_ns), together(changes, weights))


class CallNode:
    """A frame called from its parent: ``total_ns`` was spent in it and below, ``own_ns`` in it alone.

    ``samples`` passed through it. ``frame`` is the id of a frame row, 0 at the root, which stands for all of a profile.
    """

    __slots__ = ("children", "frame", "own_ns", "samples", "total_ns")

    def __init__(self, frame: int) -> None:
        self.frame, self.samples = frame, 0
        self.own_ns = self.total_ns = 0.0
        self.children: dict[int, CallNode] = {}

    def walk(self) -> Iterator[tuple[int, CallNode]]:
        """Yield (depth, node) in depth-first order, the largest child first; this node has depth 0."""
        waiting = [(0, self)]  # no recursion: stacks may be deeper than the interpreter lets functions nest
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            children = sorted(node.children.values(), key=lambda child: child.total_ns)
            waiting += [(depth + 1, child) for child in children]


def call_tree(reader: RunReader, profile: Profile) -> CallNode:
    """Merge the stacks of a profile into one tree."""
    root = CallNode(0)
    for stack, samples in profile.samples.items():
        time_ns = profile.time_ns[stack]
        path = [root]
        for frame in reader.frames_of(stack):
            children = path[-1].children
            if frame.id not in children:
                children[frame.id] = CallNode(frame.id)
            path.append(children[frame.id])
        for node in path:
            node.samples += samples
            node.total_ns += time_ns
        path[-1].own_ns += time_ns
    return root
