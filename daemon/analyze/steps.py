"""How many steps a run made and how fast, over a selection: by the loop counter that was read, else by its phases."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from profd.daemon.analyze.cycles import Seen, count_cycles
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, PointRow, ProcessRow

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
COUNTER_EVENT = "counter"
# Visited once a step, each of them; the optimizer is not, where gradients are set to zero ahead of the forward pass.
ONCE_A_STEP = (("backward",), ("forward", "loss"), ("data wait", "data load in process"))

_LONGEST_READING_S = 0.5
_CHUNK_NS = 600 * SECOND_NS


class Steps(msgspec.Struct, frozen=True):
    """How fast a run steps, and what tells; None where it is not known.

    ``count`` steps were seen, at ``per_s`` give or take at most ``per_s_error``. ``count_error`` is how many more or
    fewer there may have been, those after the last reading of the counter among them. ``source`` is the loop counter
    with its place, or the phases whose cycles were counted.
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
        steps = _by_counter(reader, process, selection)
        if steps is not None:
            return steps
    for process in processes:
        found = [_by_cycles(reader, process, selection, phases, visited) for visited in ONCE_A_STEP]
        known = [steps for steps in found if steps is not None]
        if known:
            return min(known, key=lambda steps: steps.per_s_error or 0)
    return UNKNOWN


def _by_counter(reader: RunReader, process: ProcessRow, selection: Selection) -> Steps | None:
    """Return the steps between the first and the last count in the selection."""
    counts = _points(reader, COUNT_SERIES, process, selection)
    if len(counts) < 2 or counts[-1].at_ns == counts[0].at_ns:
        return None
    errors = {point.at_ns: point.value for point in _points(reader, ERROR_SERIES, process, selection)}
    first, last = counts[0], counts[-1]
    took_s = (last.at_ns - first.at_ns) / SECOND_NS
    per_s = (last.value - first.value) / took_s
    before, after = errors.get(first.at_ns, 0.0), errors.get(last.at_ns, 0.0)
    # An error is that against the first count of all. Of two later ones only what came in between counts, and the
    # moments of the two readings.
    error = min(before + after, after - before + per_s * _LONGEST_READING_S)
    return Steps(
        per_s=per_s,
        count=round(last.value - first.value) + _made_before(reader, first, per_s, selection),
        source=_source(reader, process, last.at_ns),
        per_s_error=(1 + error) / took_s,
        count_error=math.ceil(1 + error + per_s * _unread_s(reader, last, selection)),
    )


def _unread_s(reader: RunReader, last: PointRow, selection: Selection) -> float:
    """Return for how long nothing was read at the end."""
    end_ns = reader.info.end_ns if selection.to_ns is None else min(selection.to_ns, reader.info.end_ns)
    return max(end_ns - last.at_ns, 0) / SECOND_NS


def _made_before(reader: RunReader, first: PointRow, per_s: float, selection: Selection) -> int:
    """Return the steps before the first count: all that it says, where they were made since the run was launched."""
    info = reader.info
    if info.mode != "launched" or selection.from_ns is not None:
        return 0
    can_have_made = 1 + 1.5 * per_s * (first.at_ns - info.started_ns) / SECOND_NS
    return round(first.value) if 0 <= first.value <= can_have_made else 0


def _source(reader: RunReader, process: ProcessRow, at_ns: int) -> str | None:
    """Return the name of the counter that was read at a time; one is named a little after it was first read."""
    named = [event for event in reader.events() if event.kind == COUNTER_EVENT and event.process == process.id]
    before = [event for event in named if event.at_ns <= at_ns]
    current = before[-1:] or named[:1]
    return current[0].text if current else None


def _points(reader: RunReader, name: str, process: ProcessRow, selection: Selection) -> list[PointRow]:
    series = reader.find_series(name, process.id)
    return reader.points(series.id, selection.from_ns, selection.to_ns) if series else []


def _by_cycles(
    reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex, visited: tuple[str, ...]
) -> Steps | None:
    """Return the steps that the visits of some phases show, taken together."""
    thread = next((row for row in reader.threads.values() if row.process == process.id and row.is_main), None)
    if thread is None:
        return None
    cycles = count_cycles(
        Seen(row.start_ns, phases.of_stack(row.stack) in visited, row.samples)
        for row in _intervals(reader, thread.id, selection)
    )
    if cycles is None:
        return None
    took_s = cycles.took_ns / SECOND_NS
    return Steps(
        per_s=(cycles.count - 1) / took_s,
        count=round(cycles.count),
        source=f"cycles of {' and '.join(visited)}",
        per_s_error=(1 + cycles.error) / took_s,
        count_error=math.ceil(cycles.error),
    )


def _intervals(reader: RunReader, thread: int, selection: Selection) -> Iterator[IntervalRow]:
    """Yield a thread's intervals in order of time; a part at a time, as a run may have millions."""
    from_ns = reader.info.started_ns if selection.from_ns is None else selection.from_ns
    to_ns = reader.info.end_ns if selection.to_ns is None else selection.to_ns
    for start_ns in range(from_ns, to_ns, _CHUNK_NS):
        yield from reader.intervals(start_ns, min(start_ns + _CHUNK_NS, to_ns), [thread])
