"""From when to when a run trains: from the first step that was seen in a range of time to the last one."""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.analyze.phases import STEP, PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

_LOOKED_AT_NS = 60 * SECOND_NS


def training_range(reader: RunReader, whole: Selection, phases: PhaseIndex) -> tuple[int, int] | None:
    """Return when the first step in a selection's range of time begins and the last one ends; None without a step."""
    from_ns = reader.info.started_ns if whole.from_ns is None else whole.from_ns
    to_ns = reader.info.end_ns if whole.to_ns is None else whole.to_ns
    threads = frozenset(row.id for row in reader.main_threads() if whole.takes_process(reader.processes[row.process]))
    starts = range(from_ns, to_ns, _LOOKED_AT_NS)

    def steps(start_ns: int) -> Iterator[IntervalRow]:
        rows = reader.intervals(start_ns, min(start_ns + _LOOKED_AT_NS, to_ns), threads)
        return (row for row in rows if phases.of_stack(row.stack) in STEP)

    for start_ns in starts:
        first = next(steps(start_ns), None)
        if first is not None:
            break
    else:
        return None
    for start_ns in reversed(starts):
        ends = [row.start_ns + row.duration_ns for row in steps(start_ns)]
        if ends:
            return first.start_ns, min(max(ends), to_ns)
    return None
