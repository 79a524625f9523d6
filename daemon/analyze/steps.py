"""How many steps a run made and how fast, and the range of time in which it trains.

A phase that is visited once a step shows as many steps as it has visits. Some visits fall between two samples and are
missed, so that two steps look like one: the next visit then comes after two or three times the usual distance, and is
counted so. A step that took so long by itself looks the same, so all that was added may be wrong. Where visits come at
no pace, the steps are unknown. Time aside of the steps, as an evaluation takes it, is left out of the distances.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.phases import COMPILE, ONCE_A_STEP, STARTUP, STEP, WITHOUT_STEP, PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import points_of
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT, STEP_ERROR, STEP_SOURCE
from profd.daemon.store.rows import IntervalRow, PointRow, ProcessRow


class Seen(NamedTuple):
    """An interval of a thread, and whether the phase was on.

    Aside no step is made, and a visit goes on after it only where it is inside: as a forward pass after compilation.
    """

    start_ns: int
    is_inside: bool
    is_aside: bool = False


class Cycles(msgspec.Struct, frozen=True):
    """How often a phase came round, give or take ``error``; from its first visit to its last it took ``took_ns``."""

    count: float
    error: float
    took_ns: int


def count_cycles(intervals: Iterable[Seen]) -> Cycles | None:
    """Count the visits of a phase by the intervals of a thread in order of time.

    None where there are too few visits, where too many are missed, or where they come at no pace: then the samples are
    further apart than the steps.
    """
    starts: list[int] = []
    first_ns = last_ns = aside_ns = 0
    aside_from_ns: int | None = None
    was_inside = has_left = False
    for seen in intervals:
        if seen.is_aside:
            aside_from_ns = seen.start_ns if aside_from_ns is None else aside_from_ns
            was_inside = was_inside and seen.is_inside
            continue
        if aside_from_ns is not None:
            aside_ns, aside_from_ns = aside_ns + seen.start_ns - aside_from_ns, None
        if seen.is_inside and not was_inside:
            first_ns, last_ns = first_ns if starts else seen.start_ns, seen.start_ns
            starts.append(seen.start_ns - aside_ns)
        has_left = has_left or (bool(starts) and not seen.is_inside)
        was_inside = seen.is_inside
    if len(starts) < 20 or not has_left:
        return None
    lengths = [after - before for before, after in itertools.pairwise(starts)]
    # Where steps are shorter than the distance of samples, what is seen in one says nothing of the next, and visits
    # come by chance: many follow on the one before much sooner than usual, the soonest quarter within 0.57 of the
    # median. Later ones may have missed one.
    soonest, step_ns, _ = statistics.quantiles(lengths, n=4)
    if soonest < 0.72 * step_ns:
        return None
    for _ in range(4):
        steps = [max(round(length / step_ns), 1) for length in lengths]
        missed = sum(number > 1 for number in steps) / len(steps)
        # What is more than are missed in a row once in twenty runs is a pause, and no step at first.
        most = 1 + math.floor(math.log(0.05 / len(steps)) / math.log(missed)) if 0 < missed < 1 else 1
        steps = [number if number <= most else 0 for number in steps]
        step_ns = sum(length for length, number in zip(lengths, steps, strict=True) if number) / max(sum(steps), 1)
    # Three of four distances have to be a whole number of steps, give or take 0.3 of one.
    odd = sum(abs(length / step_ns - number) > 0.3 for length, number in zip(lengths, steps, strict=True))
    made = [max(number, 1) for number in steps]  # what comes after a pause is one step on
    added = sum(made) - len(made)
    if odd > len(lengths) / 4 or added > len(made) / 2:
        return None
    # Visits before the first and after the last may have been missed too.
    return Cycles(1 + sum(made), 1 + added + math.sqrt(odd) + 0.1 * odd, last_ns - first_ns)


_EARLY_NS = 5 * SECOND_NS
# Counts of a process that lives are no further apart, pauses included: what is left ahead of the end was not read.
_UNREAD_NS = 5 * SECOND_NS
# By how much more a loop may have made before the first count than at the pace after it: so far the count is believed.
_FASTER = 1.5
_UNEVEN = 0.25  # what is not counted goes on at the pace of what is, by so much at most more or less


class Steps(msgspec.Struct, frozen=True):
    """How fast a run steps, and how that is known; None where it is not.

    ``count`` steps were made, at ``per_s`` give or take at most ``per_s_error``. ``count_error`` is how many more or
    fewer there may have been. ``source`` is what was counted: the loop counter with its place, another source, or the
    cycles of a phase.
    """

    per_s: float | None = None
    count: int | None = None
    source: str | None = None
    per_s_error: float | None = None
    count_error: int | None = None


def take_steps(reader: RunReader, selection: Selection, phases: PhaseIndex) -> Steps:
    """Return the steps of a selection's range of time, of its first trainer that shows them: ranks step together."""
    processes = selection.trainers(reader)
    processes.sort(key=lambda row: (row.rank is None, row.rank or 0, row.id))
    for find in (_counted, _by_cycles):
        for process in processes:
            steps = find(reader, process, selection, phases)
            if steps is not None:
                return steps
    return Steps()


def _counted(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    counts = points_of(reader, STEP_COUNT, process.id, selection)
    if len(counts) < 2 or counts[-1].at_ns == counts[0].at_ns:
        return None
    errors = points_of(reader, STEP_ERROR, process.id, selection)
    first, last = counts[0], counts[-1]
    took_s = (last.at_ns - first.at_ns) / SECOND_NS
    made = last.value - first.value
    # Each error is one against the first count of all; where it became less, the count was mended by as much.
    error = 1 + abs(errors[-1].value - errors[0].value) if errors else 1.0
    info = reader.info
    begin_ns, end_ns = selection.bounds(info)
    begin_ns = max(begin_ns, process.seen_ns)
    # It may have started up, or imported modules, until later than that. What a loop imports in its steps is no start.
    for row in _intervals(reader, process, selection.between(begin_ns, first.at_ns)):
        phase = phases.of_stack(row.stack)
        if phase in STEP:
            break
        if phase == STARTUP:
            begin_ns = min(row.start_ns + row.duration_ns, first.at_ns)
    before, before_error = _before(counts, begin_ns, is_launch=selection.from_ns is None and info.mode == "launched")
    is_over = process.ended_ns is not None or info.why_ended == "target-exited"
    is_alive = not is_over and end_ns - last.at_ns <= _UNREAD_NS
    after = _after(counts, end_ns, goes_on=is_alive or selection.to_ns is not None)
    # What was done, on average, of the step that a counter was read in, where that step was surely finished. Nearly all
    # counters say how many steps are done: those of a loop over a range, and those that go up at a step's end.
    begun = 0.5 if process.exit_code == 0 and selection.to_ns is None else 0.0
    # What was counted is named a little before it is first read.
    named = [event for event in reader.events() if event.kind == STEP_SOURCE and event.process == process.id]
    current = [event for event in named if event.at_ns <= last.at_ns][-1:] or named[:1]
    return Steps(
        per_s=made / took_s,
        count=round(before + made + after + begun),
        source=current[0].text if current else None,
        per_s_error=error / took_s,
        count_error=math.ceil(error + before_error + _UNEVEN * abs(after)),
    )


def _before(counts: Sequence[PointRow], begin_ns: int, *, is_launch: bool) -> tuple[float, float]:
    """Return the steps from a time to the first count, give or take how many.

    Of a run that was launched they are what the count says, where that can have been made since; else they are those of
    the time before the first count, at the pace after it.
    """
    first = counts[0]
    waited_s = max(first.at_ns - begin_ns, 0) / SECOND_NS
    early = [count for count in counts if count.at_ns <= first.at_ns + _EARLY_NS]
    near = early[-1] if len(early) > 1 else counts[1]
    pace = (near.value - first.value) * SECOND_NS / (near.at_ns - first.at_ns)
    if is_launch and 0 <= first.value <= 1 + _FASTER * max(pace, 1.0) * waited_s:
        return first.value, 0.0
    return pace * waited_s, pace * waited_s


def _after(counts: Sequence[PointRow], end_ns: int, *, goes_on: bool) -> float:
    """Return the steps from the last count to a time: of a loop that ``goes_on``, with the process, at the pace of all.

    Else the last count is that of the end, or was read while the recording was closed: that is no time of the run.
    """
    first, last = counts[0], counts[-1]
    if last.at_ns <= end_ns and not goes_on:
        return 0.0
    since = first if last.at_ns <= end_ns else counts[-2]
    return (last.value - since.value) * (end_ns - last.at_ns) / (last.at_ns - since.at_ns)


def _by_cycles(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    found = []
    for visited in ONCE_A_STEP:
        cycles = count_cycles(
            Seen(row.start_ns, phase in visited or phase == COMPILE, phase in WITHOUT_STEP)
            for row in _intervals(reader, process, selection)
            if (phase := phases.of_stack(row.stack))
        )
        if cycles is not None:
            took_s, source = cycles.took_ns / SECOND_NS, f"cycles of {' and '.join(visited)}"
            per_s, per_s_error = (cycles.count - 1) / took_s, (1 + cycles.error) / took_s
            found.append(Steps(per_s, round(cycles.count), source, per_s_error, math.ceil(cycles.error)))
    return min(found, key=lambda steps: steps.per_s_error or 0, default=None)


def _intervals(reader: RunReader, process: ProcessRow, selection: Selection) -> Iterator[IntervalRow]:
    """Yield the intervals of a process's main thread in order of time; a part at a time, as a run may have millions."""
    threads = [row.id for row in reader.threads.values() if row.process == process.id and row.is_main][:1]
    from_ns, to_ns = selection.bounds(reader.info)
    part_ns = max(600 * SECOND_NS, (to_ns - from_ns) // 5000)
    for start_ns in range(from_ns, to_ns, part_ns) if threads else ():
        yield from reader.intervals(start_ns, min(start_ns + part_ns, to_ns), threads)


def training_range(reader: RunReader, whole: Selection, phases: PhaseIndex) -> tuple[int, int] | None:
    """Return when the first step in a selection's range of time begins and the last one ends; None without a step."""
    from_ns, to_ns = whole.bounds(reader.info)
    threads = frozenset(row.id for row in reader.main_threads() if whole.takes_process(reader.processes[row.process]))
    starts = range(from_ns, to_ns, 60 * SECOND_NS)

    def steps(start_ns: int) -> Iterator[IntervalRow]:
        rows = reader.intervals(start_ns, min(start_ns + starts.step, to_ns), threads)
        return (row for row in rows if phases.of_stack(row.stack) in STEP)

    first = next((row for start_ns in starts for row in steps(start_ns)), None)
    if first is None:
        return None
    # The last part with a step has the last one: this yields at least the part of the first.
    ends = (max((row.end_ns for row in steps(start_ns)), default=0) for start_ns in reversed(starts))
    return first.start_ns, min(next(filter(None, ends)), to_ns)
