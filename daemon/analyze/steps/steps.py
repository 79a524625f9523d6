"""How many steps a run made and how fast, over a selection: by what counted them, else by the phases of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.phases import (
    BACKWARD,
    COMPILE,
    DATA_LOAD,
    DATA_WAIT,
    FORWARD,
    LOSS,
    STARTUP,
    WITHOUT_STEP,
    PhaseIndex,
)
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps.cycles import Cycles, Seen, count_cycles
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, PointRow, ProcessRow

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
COUNTER_EVENT = "counter"
# Visited once a step, each of them; the optimizer is not, where gradients are set to zero ahead of the forward pass.
ONCE_A_STEP = ((BACKWARD,), (FORWARD, LOSS), (DATA_WAIT, DATA_LOAD))

_EARLY_NS = 5 * SECOND_NS
# Counts of a process that lives are no further apart, pauses included: what is left ahead of the end was not read.
_UNREAD_NS = 5 * SECOND_NS
# By how much more a loop may have made before the first count than at the pace after it: so far the count is believed.
_FASTER = 1.5
# What is not counted goes on at the pace of what is, by so much at most more or less.
_UNEVEN = 0.25
_CHUNK_NS = 600 * SECOND_NS
_MOST_CHUNKS = 5000


class Steps(msgspec.Struct, frozen=True):
    """How fast a run steps, and what tells; None where it is not known.

    ``count`` steps were made, at ``per_s`` give or take at most ``per_s_error``. ``count_error`` is how many more or
    fewer there may have been. ``source`` is what was counted: the loop counter with its place, another source, or the
    cycles of a phase.
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
        steps = _counted(reader, process, selection, phases)
        if steps is not None:
            return steps
    for process in processes:
        steps = _by_cycles(reader, process, selection, phases)
        if steps is not None:
            return steps
    return UNKNOWN


def _counted(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    """Return the steps between the first and the last count in the selection, with those before the first."""
    counts = _points(reader, COUNT_SERIES, process, selection)
    if len(counts) < 2 or counts[-1].at_ns == counts[0].at_ns:
        return None
    errors = _points(reader, ERROR_SERIES, process, selection)
    first, last = counts[0], counts[-1]
    took_s = (last.at_ns - first.at_ns) / SECOND_NS
    made = last.value - first.value
    # Each error is one against the first count of all; where it became less, the count was mended by as much.
    error = 1 + abs(errors[-1].value - errors[0].value) if errors else 1.0
    info = reader.info
    begin_ns = max(info.started_ns if selection.from_ns is None else selection.from_ns, process.seen_ns)
    begin_ns = _started_ns(reader, process, phases, begin_ns, first.at_ns)
    end_ns = min(info.end_ns, info.end_ns if selection.to_ns is None else selection.to_ns)
    before, before_error = _before(counts, begin_ns, is_launch=selection.from_ns is None and info.mode == "launched")
    is_over = process.ended_ns is not None or info.why_ended == "target-exited"
    is_alive = not is_over and end_ns - last.at_ns <= _UNREAD_NS
    after = _after(counts, end_ns, goes_on=is_alive or selection.to_ns is not None)
    return Steps(
        per_s=made / took_s,
        count=round(before + made + after + _begun(process, selection)),
        source=_source(reader, process, last.at_ns),
        per_s_error=error / took_s,
        count_error=math.ceil(error + before_error + _UNEVEN * abs(after)),
    )


def _started_ns(reader: RunReader, process: ProcessRow, phases: PhaseIndex, from_ns: int, to_ns: int) -> int:
    """Return when a process last started up or imported modules in a range of time; the beginning if it did not."""
    thread = _main_thread(reader, process)
    rows = _intervals(reader, thread, Selection(from_ns=from_ns, to_ns=to_ns)) if thread is not None else iter(())
    ends = (row.start_ns + row.duration_ns for row in rows if phases.of_stack(row.stack) == STARTUP)
    return min(max(ends, default=from_ns), to_ns)


def _main_thread(reader: RunReader, process: ProcessRow) -> int | None:
    """Return the id of a process's main thread; None where it was not sampled."""
    return next((row.id for row in reader.threads.values() if row.process == process.id and row.is_main), None)


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


def _begun(process: ProcessRow, selection: Selection) -> float:
    """Return what was done, on average, of the step that a counter was read in, where that step was surely finished.

    Nearly all counters say how many steps are done: those of a loop over a range, and those that go up at a step's end.
    """
    return 0.5 if process.exit_code == 0 and selection.to_ns is None else 0.0


def _source(reader: RunReader, process: ProcessRow, at_ns: int) -> str | None:
    """Return the name of what was counted at a time; it is named a little before it is first read."""
    named = [event for event in reader.events() if event.kind == COUNTER_EVENT and event.process == process.id]
    before = [event for event in named if event.at_ns <= at_ns]
    current = before[-1:] or named[:1]
    return current[0].text if current else None


def _points(reader: RunReader, name: str, process: ProcessRow, selection: Selection) -> list[PointRow]:
    series = reader.find_series(name, process.id)
    return reader.points(series.id, selection.from_ns, selection.to_ns) if series else []


def _by_cycles(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    """Return the steps by how often a phase of them comes round in the stacks of the main thread."""
    found = [_steps_of(cycles, what) for what, cycles in _cycles(reader, process, selection, phases)]
    return min(found, key=lambda steps: steps.per_s_error or 0, default=None)


def _cycles(
    reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex
) -> Iterator[tuple[str, Cycles]]:
    """Yield how often phases of a step came round, by their names; only those that tell."""
    thread = _main_thread(reader, process)
    if thread is None:
        return
    for visited in ONCE_A_STEP:
        seen = (
            Seen(row.start_ns, phase in visited or phase == COMPILE, row.samples, phase in WITHOUT_STEP)
            for row in _intervals(reader, thread, selection)
            if (phase := phases.of_stack(row.stack))
        )
        if (cycles := count_cycles(seen)) is not None:
            yield " and ".join(visited), cycles


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
