"""The last torch.profiler window's operators, and the user's lines that issued them.

A trace and samples are on one clock, but only so far: a recording knows how far its times may be
off. A sample counts for an operator if that makes no difference: its thread was at the same line
for so long before and after, or the same call of the operator lasted for so long. All other samples
are left out, and so is the last one of an interval, after which the line may have changed.
Operators on threads without Python, such as those of autograd for devices, belong to what the main
thread does then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.phases import own_frame
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.torchtraces import (
    TorchTrace,
    decode,
    last_windows,
    trace_text,
)
from profd.daemon.analyze.windows import (
    BEFORE_NS,
    HOST,
    AboutWindow,
    Line,
    about_window,
    python_threads,
)
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import IntervalRow, WindowRow
from profd.daemon.timerange import TimeRange

LARGEST_BYTES = 128 << 20
"""Larger traces are left out: they would delay a table by many seconds."""


class IssuingLine(Line, frozen=True):
    """A line of the user's code that ran while an operator did, in so many ``samples``."""

    samples: int


class Stay(NamedTuple):
    """A thread at one line of the user's, seen at ``moments_ns``, surely until ``known_ns``."""

    start_ns: int
    end_ns: int
    known_ns: int
    line: Line | None
    moments_ns: list[int]


class OperatorCall(NamedTuple):
    """One call of an operator, with all that it called in turn."""

    start_ns: int
    end_ns: int
    name: str


def issuing_lines(reader: RunReader, window: WindowRow) -> dict[str, tuple[IssuingLine, ...]]:
    """Return by operator name the lines that issued its calls, those with most samples first.

    Operators that were too short and too few to be seen are left out. Raises RunUnreadable if
    the trace is damaged.
    """
    text = trace_text(reader, window) if window.trace_bytes <= LARGEST_BYTES else None
    if text is None:
        return {}
    trace = decode(window, text)
    begun = reader.recordings(TimeRange(to_ns=window.end_ns))
    rows = [row for row in begun if row.process == window.process and row.end_ns > window.start_ns]
    error_ns = max((row.clock_error_ns for row in rows), default=0)
    rate_hz = min((row.rate_hz for row in rows), default=1)
    # Samples come at random: 95 of 100 times one of them has come within three of their mean
    # distances.
    gap_ns = 3 * SECOND_NS // max(rate_hz, 1)
    seen: defaultdict[str, Counter[Line]] = defaultdict(Counter)
    for threads, calls in _calls_by_thread(reader, window, trace).items():
        around = TimeRange(window.start_ns - BEFORE_NS, window.end_ns + error_ns)
        intervals = reader.intervals(around, threads)
        for name, line in tie(_stays(reader, intervals, gap_ns), calls, error_ns):
            seen[name][line] += 1
    return {
        name: tuple(
            IssuingLine(line.file, line.module_path, line.line, count)
            for line, count in lines.most_common()
        )
        for name, lines in seen.items()
    }


def tie(
    stays: Iterable[Stay], calls: Sequence[OperatorCall], error_ns: int
) -> Iterator[tuple[str, Line]]:
    """Yield for each sample the operators that surely run in it, with its line.

    ``calls`` are sorted, callers first.
    """
    opened: list[OperatorCall] = []
    place = 0
    for stay in stays:
        for at_ns in stay.moments_ns:
            while place < len(calls) and calls[place].start_ns <= at_ns:
                opened.append(calls[place])
                place += 1
            opened = [call for call in opened if call.end_ns > at_ns]
            if stay.line is None or at_ns > stay.known_ns:
                continue
            from_ns, to_ns = at_ns - error_ns, at_ns + error_ns
            stays_on = stay.start_ns <= from_ns and to_ns <= stay.known_ns
            names = {
                call.name
                for call in opened
                if stays_on or (call.start_ns <= from_ns and to_ns <= call.end_ns)
            }
            yield from ((name, stay.line) for name in sorted(names))


def _calls_by_thread(
    reader: RunReader, window: WindowRow, trace: TorchTrace
) -> dict[tuple[int, ...], list[OperatorCall]]:
    """Return a trace's operators by the rows of their Python thread, one for each of its names."""
    named, main = python_threads(reader, window.process)
    calls: defaultdict[tuple[int, ...], list[OperatorCall]] = defaultdict(list)
    for event in trace.events:
        if event.ph == "X" and event.cat in ("cpu_op", "user_annotation"):
            threads = named.get(event.tid, main) if isinstance(event.tid, int) else main
            calls[threads].append(
                OperatorCall(trace.start_ns(event), trace.end_ns(event), event.name)
            )
    for found in calls.values():
        found.sort(key=lambda call: (call.start_ns, -call.end_ns))
    return {threads: found for threads, found in calls.items() if threads}


def _stays(reader: RunReader, intervals: Iterable[IntervalRow], gap_ns: int) -> Iterator[Stay]:
    """Yield the stays of a thread at lines by its intervals in order of time; a gap ends a stay."""
    last: Stay | None = None
    for interval in intervals:
        start_ns, end_ns = interval.time
        frame = own_frame(reader.frames_of(interval.stack))
        line = Line(frame.file, frame.module_path, frame.line) if frame else None
        known_ns = max(end_ns - gap_ns, start_ns)
        stay = Stay(start_ns, end_ns, known_ns, line, interval.moments_ns)
        if last and last.line is not None and last.line == line and start_ns <= last.end_ns:
            last = stay._replace(
                start_ns=last.start_ns, moments_ns=last.moments_ns + stay.moments_ns
            )
            continue
        if last:
            yield last
        last = stay
    if last:
        yield last


OPERATORS = 10


class OperatorSummary(msgspec.Struct, frozen=True):
    """All calls of an operator on the host in a window.

    Shares, 0 to 1, are of the self times of all operators; ``self_cuda_share`` is None if
    nothing ran on a GPU. ``line`` issued it, by most of its samples.
    """

    name: str
    calls: int
    self_cpu_ns: int
    self_cpu_share: float
    cpu_total_ns: int
    self_cuda_ns: int
    self_cuda_share: float | None
    cuda_total_ns: int
    line: IssuingLine | None


class WindowSummary(AboutWindow, frozen=True, kw_only=True):
    """A window of one process, with the operators that take most of the GPU, or else of the CPU."""

    pid: int
    rank: int | None
    source: str
    start_ns: int
    end_ns: int
    steps: int
    operators: tuple[OperatorSummary, ...]


def last_window(reader: RunReader, selection: Selection) -> tuple[WindowSummary, ...]:
    """Return the last window in a selection's time of each of its processes, by rank."""
    found = []
    for window in last_windows(reader, selection):
        process = reader.processes[window.process]
        summary = WindowSummary(
            pid=process.pid,
            rank=process.rank,
            source=window.source,
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            steps=len(reader.window_steps(window.id)),
            operators=_heaviest(reader, window),
            **msgspec.structs.asdict(about_window(reader, window)),
        )
        found.append(summary)
    return tuple(found)


def by_name(rows: Iterable[OperatorTotals]) -> list[OperatorTotals]:
    """Return the operators of a window without regard to shapes."""
    groups: defaultdict[tuple[str, str, bool], list[OperatorTotals]] = defaultdict(list)
    for row in rows:
        groups[row.name, row.device, row.is_annotation].append(row)
    sums = OperatorTotals.__struct_fields__[4:]
    added = (
        {field: sum(getattr(row, field) for row in group) for field in sums}
        for group in groups.values()
    )
    firsts = (group[0] for group in groups.values())
    return [
        msgspec.structs.replace(row, input_shapes="", **of)
        for row, of in zip(firsts, added, strict=True)
    ]


def _heaviest(reader: RunReader, window: WindowRow) -> tuple[OperatorSummary, ...]:
    # Lines come from the trace: a larger one would delay a summary by seconds.
    lines = issuing_lines(reader, window) if window.trace_bytes <= 16 << 20 else {}
    # As in torch's table: kernels are counted for the operators that start them.
    rows = [row for row in by_name(reader.operators(window.id)) if row.device == HOST]
    own = [row for row in rows if not row.is_annotation]
    cpu_ns, cuda_ns = sum(row.self_cpu_ns for row in rows), sum(row.self_cuda_ns for row in own)
    own.sort(
        key=lambda row: (row.self_cuda_ns, row.self_cpu_ns) if cuda_ns else (row.self_cpu_ns, 0),
        reverse=True,
    )
    return tuple(
        OperatorSummary(
            row.name,
            row.calls,
            row.self_cpu_ns,
            row.self_cpu_ns / cpu_ns if cpu_ns else 0.0,
            row.cpu_total_ns,
            row.self_cuda_ns,
            row.self_cuda_ns / cuda_ns if cuda_ns else None,
            row.cuda_total_ns,
            line=next(iter(lines.get(row.name, ())), None),
        )
        for row in own[:OPERATORS]
    )
