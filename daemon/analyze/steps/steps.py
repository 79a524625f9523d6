"""How many steps a run made and how fast, over a selection.

By the loop counter that was read, else by the phases of its steps, else by the lines of its loop.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps.cycles import Cycles, Seen, count_cycles
from profd.daemon.analyze.steps.linecycles import count_lines
from profd.daemon.analyze.steps.loopend import loop_left_ns
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, PointRow, ProcessRow

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
COUNTER_EVENT = "counter"
# Visited once a step, each of them; the optimizer is not, where gradients are set to zero ahead of the forward pass.
ONCE_A_STEP = (("backward",), ("forward", "loss"), ("data wait", "data load in process"))

_LONGEST_READING_S = 0.5
# The last counts tell how fast the run stepped after the last one of them, and how much that varies.
_LATE_COUNTS = 7
# And the first ones how fast it stepped before them.
_EARLY_COUNTS = 4
_LEAST_SPREAD = 0.02
_SPREAD_UNKNOWN = 0.1
_LINES_NS = 600 * SECOND_NS
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
        steps = _by_counter(reader, process, selection)
        if steps is not None:
            return steps
    for process in processes:
        steps = _by_cycles(reader, process, selection, phases)
        if steps is not None:
            return steps
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
    error = _error_between(errors.get(first.at_ns, 0.0), errors.get(last.at_ns, 0.0), per_s)
    source = _source(reader, process, last.at_ns)
    later, later_error = _made_after(reader, process, counts, source, selection)
    return Steps(
        per_s=per_s,
        count=round(last.value - first.value + later + _begun(process, selection))
        + _made_before(reader, counts, selection),
        source=source,
        per_s_error=(1 + error) / took_s,
        count_error=math.ceil(1 + error + later_error),
    )


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


def _made_after(
    reader: RunReader, process: ProcessRow, counts: Sequence[PointRow], source: str | None, selection: Selection
) -> tuple[float, float]:
    """Return the steps from the last count to the end, at the pace of the last counts, and how wrong that may be."""
    last = counts[-1]
    end_ns = reader.info.end_ns if selection.to_ns is None else min(selection.to_ns, reader.info.end_ns)
    if end_ns <= last.at_ns:
        return 0.0, 0.0
    gap_s = (loop_left_ns(reader, process.id, source, last.at_ns, end_ns) - last.at_ns) / SECOND_NS
    late = counts[-_LATE_COUNTS:]
    pace = _pace(late[0], late[-1])
    paces = [_pace(*pair) for pair in itertools.pairwise(late)]
    spread = max(statistics.pstdev(paces), _LEAST_SPREAD * pace) if len(paces) > 1 else _SPREAD_UNKNOWN * pace
    return pace * gap_s, spread * gap_s


def _pace(before: PointRow, after: PointRow) -> float:
    """Return the steps a second between two counts."""
    return (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)


def _made_before(reader: RunReader, counts: Sequence[PointRow], selection: Selection) -> int:
    """Return the steps before the first count: all that it says, where they can have been made since the launch.

    By the pace of the first counts: a loop that slows down made more steps before than its mean tells.
    """
    info, first = reader.info, counts[0]
    if info.mode != "launched" or selection.from_ns is not None:
        return 0
    pace = max(_pace(first, counts[min(_EARLY_COUNTS, len(counts)) - 1]), _pace(first, counts[-1]))
    can_have_made = 1 + 1.5 * pace * (first.at_ns - info.started_ns) / SECOND_NS
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


def _by_cycles(reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex) -> Steps | None:
    """Return the steps that come round in the stacks of the main thread: by the phases of a training, else by lines."""
    thread = next((row for row in reader.threads.values() if row.process == process.id and row.is_main), None)
    if thread is None:
        return None
    found = []
    for visited in ONCE_A_STEP:
        rows = _intervals(reader, thread.id, selection)
        cycles = count_cycles(Seen(row.start_ns, phases.of_stack(row.stack) in visited, row.samples) for row in rows)
        if cycles is not None:
            found.append(_steps_of(cycles, " and ".join(visited)))
    if found:
        return min(found, key=lambda steps: steps.per_s_error or 0)
    return _by_lines(reader, thread.id, selection)


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
