"""How many steps a run made from minute to minute, by its loop counter, else by the cycles of its stacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.compare.blocks import BLOCKS
from profd.daemon.analyze.findings.training import training_range
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.steps.steps import COUNT_SERIES, take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, ProcessRow
from profd.daemon.store.sums.held import MINUTE_NS


class StepCount(msgspec.Struct, frozen=True):
    """A training process made so many steps from ``at_ns`` on; parts of steps count."""

    process: int
    at_ns: int
    duration_ns: int
    steps: float


def take_step_counts(reader: RunReader, phases: PhaseIndex) -> Iterator[StepCount]:
    """Yield the steps of each process that has a counter; where none has, of the first one whose stacks tell."""
    trainers = [row for row in reader.processes.values() if row.role == "main"]
    trainers.sort(key=lambda row: (row.rank is None, row.rank or 0, row.id))
    counted = [one for process in trainers for one in _by_counter(reader, process)]
    if counted:
        yield from counted
        return
    for process in trainers:
        cycles = list(_by_cycles(reader, process, phases))
        if cycles:
            yield from cycles
            return


def _by_counter(reader: RunReader, process: ProcessRow) -> Iterator[StepCount]:
    """Yield the steps of each minute between the first and the last count; between two counts at an even pace."""
    series = reader.find_series(COUNT_SERIES, process.id)
    points = reader.points(series.id) if series else []
    if len(points) < 2:
        return
    first = points[0].at_ns
    edges = [first, *range(_minute_after(reader, first), points[-1].at_ns, MINUTE_NS), points[-1].at_ns]
    counts = _interpolated(points, edges)
    for (start_ns, before), (end_ns, after) in itertools.pairwise(zip(edges, counts, strict=True)):
        if end_ns > start_ns and after >= before:
            yield StepCount(process.id, start_ns, end_ns - start_ns, after - before)


def _minute_after(reader: RunReader, at_ns: int) -> int:
    """Return when the first minute of the run begins that begins after a time."""
    started_ns = reader.info.started_ns
    return started_ns + ((at_ns - started_ns) // MINUTE_NS + 1) * MINUTE_NS


def _interpolated(points: Sequence[PointRow], edges: Sequence[int]) -> list[float]:
    """Return the counts at some times in order, none of which lies outside of the points."""
    counts, number = [], 0
    for at_ns in edges:
        while number + 2 < len(points) and points[number + 1].at_ns < at_ns:
            number += 1
        before, after = points[number], points[number + 1]
        part = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
        counts.append(before.value + (after.value - before.value) * part)
    return counts


def _by_cycles(reader: RunReader, process: ProcessRow, phases: PhaseIndex) -> Iterator[StepCount]:
    """Yield the steps of equal parts of the training, of those that tell."""
    whole = msgspec.structs.replace(MAIN_THREADS, processes=frozenset({process.id}))
    found = training_range(reader, whole, phases)
    if found is None:
        return
    from_ns, to_ns = found
    edges = [from_ns + (to_ns - from_ns) * number // BLOCKS for number in range(BLOCKS + 1)]
    for start_ns, end_ns in itertools.pairwise(edges):
        part = Selection(start_ns, end_ns, whole.processes, main_threads=True)
        rate = take_steps(reader, part, phases).per_s
        if rate:
            yield StepCount(process.id, start_ns, end_ns - start_ns, rate * (end_ns - start_ns) / SECOND_NS)
