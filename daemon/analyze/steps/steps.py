"""How many steps a run made and how fast, over a selection.

By the loop counter that was read, else by the phases of its steps, else by the lines of its loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps.cycles import Cycles, Seen, count_cycles
from profd.daemon.analyze.steps.linecycles import count_lines
from profd.daemon.analyze.steps.looptime import ASIDE, COMPILE, LoopTime
from profd.daemon.analyze.steps.unread import NONE, Visits, earliest, latest, made_after, made_before, made_between
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, PointRow, ProcessRow

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
COUNTER_EVENT = "counter"
# Visited once a step, each of them; the optimizer is not, where gradients are set to zero ahead of the forward pass.
ONCE_A_STEP = (("backward",), ("forward", "loss"), ("data wait", "data load in process"))

_LONGEST_READING_S = 0.5
_LINES_NS = 600 * SECOND_NS
_SOON_NS = 120 * SECOND_NS
_CHUNK_NS = 600 * SECOND_NS
_MOST_CHUNKS = 5000


class Steps(msgspec.Struct, frozen=True):
    """How fast a run steps, and what tells; None where it is not known.

    ``count`` steps were made, at ``per_s`` give or take at most ``per_s_error``. ``count_error`` is how many more or
    fewer there may have been. ``source`` is the loop counter with its place, or what was counted the cycles of.
    """

    per_s: float | None = None
    count: int | None = None
    source: str | None = None
    per_s_error: float | None = None
    count_error: int | None = None


UNKNOWN = Steps()


def take_steps(reader: RunReader, selection: Selection, phases: PhaseIndex) -> Steps:
    """Return the steps of a selection's range of time, of the first of its training processes that tells.

    Ranks step together, so one of them says it for all.
    """
    processes = [row for row in reader.processes.values() if row.role == "main" and selection.takes_process(row)]
    processes.sort(key=lambda row: (row.rank is None, row.rank or 0, row.id))
    for process in processes:
        steps = _by_counter(reader, process, selection, phases)
        if steps is not None:
            return steps
    for process in processes:
        steps = _by_cycles(reader, process, selection, phases)
        if steps is not None:
            return steps
    return UNKNOWN


def _by_counter(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    """Return the steps between the first and the last count in the selection, and those before and after them."""
    counts = _points(reader, COUNT_SERIES, process, selection)
    if len(counts) < 2 or counts[-1].at_ns == counts[0].at_ns:
        return None
    errors = {point.at_ns: point.value for point in _points(reader, ERROR_SERIES, process, selection)}
    first, last = counts[0], counts[-1]
    took_s = (last.at_ns - first.at_ns) / SECOND_NS
    per_s = (last.value - first.value) / took_s
    error = _error_between(errors.get(first.at_ns, 0.0), errors.get(last.at_ns, 0.0), per_s)
    source = _source(reader, process, last.at_ns)

    def times(range_ns: tuple[int, int], near: Sequence[PointRow]) -> LoopTime:
        return LoopTime(reader, phases, process.id, source, range_ns, near)

    def visits(unread_ns: tuple[int, int], near: Sequence[PointRow]) -> Visits | None:
        return _visits(reader, process, phases, unread_ns, near)

    info, before = reader.info, NONE
    if selection.from_ns is None:
        told = visits((info.started_ns, first.at_ns), earliest(counts))
        before = made_before(counts, info.started_ns, told, times, is_launched=info.mode == "launched")
    following = _following(reader, process, selection)
    if following is not None and selection.to_ns is not None:
        after = made_between(last, following, selection.to_ns)
    else:
        end_ns = info.end_ns if selection.to_ns is None else min(selection.to_ns, info.end_ns)
        after = made_after(counts, end_ns, visits((last.at_ns, end_ns), latest(counts)), times)
    return Steps(
        per_s=per_s,
        count=round(before.steps + last.value - first.value + after.steps + _begun(process, selection)),
        source=source,
        per_s_error=(1 + error) / took_s,
        count_error=math.ceil(1 + error + before.error + after.error),
    )


def _following(reader: RunReader, process: ProcessRow, selection: Selection) -> PointRow | None:
    """Return the count that follows on a selection; None where it has no end, or none follows soon."""
    if selection.to_ns is None:
        return None
    soon = Selection(from_ns=selection.to_ns, to_ns=selection.to_ns + _SOON_NS)
    return next(iter(_points(reader, COUNT_SERIES, process, soon)), None)


def _begun(process: ProcessRow, selection: Selection) -> float:
    """Return what was done, on average, of the step that a counter was read in, where that step was surely finished.

    Nearly all counters say how many steps are done: those of a loop over a range, and those that go up at a step's end.
    """
    return 0.5 if process.exit_code == 0 and selection.to_ns is None else 0.0


def _error_between(before: float, after: float, per_s: float) -> float:
    """Return by how many steps two counts may be wrong against each other, each being so against the first of all.

    Where errors add up, only what came in between counts, and the moments of the two readings. Where the later one is
    known better, nothing is known of the earlier one.
    """
    added = after - before + per_s * _LONGEST_READING_S
    return min(before + after, added) if after >= before else before + after


def _visits(
    reader: RunReader, process: ProcessRow, phases: PhaseIndex, unread_ns: tuple[int, int], near: Sequence[PointRow]
) -> Visits | None:
    """Return how often a phase of a step was visited in a range of time, and between counts; None: it does not tell."""
    if not 0 < unread_ns[1] - unread_ns[0] <= _LINES_NS:
        return None
    read_ns = near[0].at_ns, near[-1].at_ns
    unread, read = (
        dict(_cycles(reader, process, Selection(from_ns=from_ns, to_ns=to_ns), phases))
        for from_ns, to_ns in (unread_ns, read_ns)
    )
    found = [
        Visits(
            unread=unread[what].count,
            read=read[what].count,
            error_share=unread[what].error / unread[what].count + read[what].error / read[what].count,
            counted=near[-1].value - near[0].value,
        )
        for what in unread.keys() & read.keys()
    ]
    return min(found, key=lambda visits: visits.error_share, default=None)


def _source(reader: RunReader, process: ProcessRow, at_ns: int) -> str | None:
    """Return the name of the counter that was read at a time; one is named a little after it was first read."""
    named = [event for event in reader.events() if event.kind == COUNTER_EVENT and event.process == process.id]
    before = [event for event in named if event.at_ns <= at_ns]
    current = before[-1:] or named[:1]
    return current[0].text if current else None


def _points(reader: RunReader, name: str, process: ProcessRow, selection: Selection) -> list[PointRow]:
    series = reader.find_series(name, process.id)
    return reader.points(series.id, selection.from_ns, selection.to_ns) if series else []


def _by_cycles(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    """Return the steps that come round in the stacks of the main thread: by the phases of a training, else by lines."""
    found = [_steps_of(cycles, what) for what, cycles in _cycles(reader, process, selection, phases)]
    if found:
        return min(found, key=lambda steps: steps.per_s_error or 0)
    thread = _main_thread(reader, process)
    return None if thread is None else _by_lines(reader, thread, selection)


def _cycles(
    reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex
) -> Iterator[tuple[str, Cycles]]:
    """Yield how often phases of a step came round, by their names; only those that tell."""
    thread = _main_thread(reader, process)
    if thread is None:
        return
    for visited in ONCE_A_STEP:
        seen = (
            Seen(row.start_ns, phase in visited or phase == COMPILE, row.samples, phase in ASIDE)
            for row in _intervals(reader, thread, selection)
            if (phase := phases.of_stack(row.stack))
        )
        if (cycles := count_cycles(seen)) is not None:
            yield " and ".join(visited), cycles


def _main_thread(reader: RunReader, process: ProcessRow) -> int | None:
    """Return the id of a process's main thread; None where it was not sampled."""
    return next((row.id for row in reader.threads.values() if row.process == process.id and row.is_main), None)


def _by_lines(reader: RunReader, thread: int, selection: Selection) -> Steps | None:
    """Return the steps by how often a line of the loop came round, over the last part of a long run."""
    rows = list(_intervals(reader, thread, selection))
    late = [row for row in rows if row.start_ns >= rows[-1].start_ns - _LINES_NS]
    found = count_lines(reader, late) if late else None
    if found is None:
        return None
    steps = _steps_of(found.cycles, found.line.label)
    return steps if len(late) == len(rows) else msgspec.structs.replace(steps, count=None, count_error=None)


def _steps_of(cycles: Cycles, what: str) -> Steps:
    took_s = cycles.took_ns / SECOND_NS
    return Steps(
        per_s=(cycles.count - 1) / took_s,
        count=round(cycles.count),
        source=f"cycles of {what}",
        per_s_error=(1 + cycles.error) / took_s,
        count_error=math.ceil(cycles.error),
    )


def _intervals(reader: RunReader, thread: int, selection: Selection) -> Iterator[IntervalRow]:
    """Yield a thread's intervals in order of time; a part at a time, as a run may have millions."""
    from_ns = reader.info.started_ns if selection.from_ns is None else selection.from_ns
    to_ns = reader.info.end_ns if selection.to_ns is None else selection.to_ns
    chunk_ns = max(_CHUNK_NS, (to_ns - from_ns) // _MOST_CHUNKS)
    for start_ns in range(from_ns, to_ns, chunk_ns):
        yield from reader.intervals(start_ns, min(start_ns + chunk_ns, to_ns), [thread])
