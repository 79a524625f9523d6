"""When the memory of a process jumped, and what its main thread did at that moment."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.course import take_course
from profd.daemon.analyze.memory.headroom import GPU_SERIES
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import EventRow, FrameRow, PointRow, SeriesRow

SERIES = ("rss_bytes", GPU_SERIES)
LEAST_BYTES = 32e6
LEAST_SHARE = 0.05
NEIGHBORS = 5
# What grows as fast as this all the time does not jump.
LEAST_STEPS = 10
NEAR_NS = 2 * SECOND_NS
LONGEST_STACK_NS = 30 * SECOND_NS
MOST_JUMPS = 10
# Of so many minutes those are looked at closely in which there may be a jump.
LEAST_MINUTES = 240
NEAR_STEP_NS = 90 * SECOND_NS
EVERYTHING = Selection()


class Jump(msgspec.Struct, frozen=True):
    """The memory of a process rose between two readings, by ``by_bytes``, and stayed there.

    ``process`` is the id of its row. ``stack`` is what its main thread mostly stood in between the two, ``line`` the
    line of the user's code in it; None where nothing was sampled then. ``events`` are those within two seconds.
    """

    process: int
    pid: int
    series: str
    device: str | None
    from_ns: int
    at_ns: int
    by_bytes: float
    stack: int | None
    line: FrameRow | None
    events: tuple[EventRow, ...]


def jumps(reader: RunReader, phases: PhaseIndex, selection: Selection = EVERYTHING) -> tuple[Jump, ...]:
    """Return the largest jumps in the memory of the processes of a selection, in order of time."""
    found: list[Jump] = []
    events = [event for event in reader.events() if event.kind != "finding"]  # what follows from it is no cause
    for row in reader.series.values():
        process = reader.processes.get(row.process or 0)
        if row.name in SERIES and process and selection.takes_process(process):
            steps = _steps_of(reader, row.id, selection)
            found += (_jump(reader, phases, row, before, after, events) for before, after in steps)
    found.sort(key=lambda jump: -jump.by_bytes)
    return tuple(sorted(found[:MOST_JUMPS], key=lambda jump: (jump.at_ns, jump.process)))


def _steps_of(reader: RunReader, series: int, selection: Selection) -> Iterator[tuple[PointRow, PointRow]]:
    """Yield the readings between which a series jumped; of a long time, those in the minutes that say so."""
    course = take_course(reader, series, selection.from_ns, selection.to_ns, LEAST_MINUTES)
    coarse = list(_steps(course.extremes(reader.info.started_ns)))
    if not course.minutes:
        yield from coarse
        return
    found: dict[int, tuple[PointRow, PointRow]] = {}
    for before, after in sorted(coarse, key=lambda step: step[0].value - step[1].value)[:MOST_JUMPS]:
        near = reader.points(series, before.at_ns - NEAR_STEP_NS, after.at_ns + NEAR_STEP_NS)
        found |= {step[1].at_ns: step for step in _steps(near)}
    yield from found.values()


def _steps(points: Sequence[PointRow]) -> Iterator[tuple[PointRow, PointRow]]:
    """Yield the readings between which a series went up to where it had not been shortly before, and stayed."""
    changes = [abs(after.value - before.value) for before, after in itertools.pairwise(points)]
    usual = statistics.median(changes) if changes else 0.0
    for index in range(NEIGHBORS, len(points) - NEIGHBORS + 1):
        before, after = points[index - 1], points[index]
        if after.value - before.value < LEAST_BYTES:  # what follows asks for more, and takes longer
            continue
        highest = max(point.value for point in points[index - NEIGHBORS : index])
        lowest = min(point.value for point in points[index : index + NEIGHBORS])
        if lowest - highest >= max(LEAST_BYTES, LEAST_SHARE * highest, LEAST_STEPS * usual):
            yield before, after


def _jump(
    reader: RunReader, phases: PhaseIndex, row: SeriesRow, before: PointRow, after: PointRow, events: Sequence[EventRow]
) -> Jump:
    process = row.process or 0
    stack = _stack_between(reader, process, before.at_ns, after.at_ns)
    return Jump(
        process=process,
        pid=reader.processes[process].pid,
        series=row.name,
        device=row.device,
        from_ns=before.at_ns,
        at_ns=after.at_ns,
        by_bytes=after.value - before.value,
        stack=stack,
        line=None if stack is None else phases.user_line(stack),
        events=tuple(event for event in events if before.at_ns - NEAR_NS <= event.at_ns <= after.at_ns + NEAR_NS),
    )


def _stack_between(reader: RunReader, process: int, from_ns: int, to_ns: int) -> int | None:
    """Return the stack that the main thread of a process spent most of a time in."""
    threads = [thread.id for thread in reader.threads.values() if thread.process == process and thread.is_main]
    spent_ns: defaultdict[int, int] = defaultdict(int)
    for interval in reader.intervals(from_ns - LONGEST_STACK_NS, to_ns, threads):
        end_ns = interval.start_ns + interval.duration_ns
        spent_ns[interval.stack] += max(min(end_ns, to_ns) - max(interval.start_ns, from_ns), 0)
    stack = max(spent_ns, key=lambda stack: spent_ns[stack], default=None)
    return stack if stack is not None and spent_ns[stack] else None
