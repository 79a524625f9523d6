"""Ties the operators of a window to the lines of the user's code that issued them, by the samples of the same time.

A trace and samples are on one clock, but only so far: a recording knows how far its times may be off. A sample speaks
for an operator where that makes no difference: its thread stood in the same line for so long before and after, or the
same call of the operator lasted for so long. All others are left out. So are those at the end of an interval, where the
line may have changed since the last of them. Operators run from C++ on threads that have no Python, as those that
autograd has for devices, belong to what the main thread does meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.phases import own_frame
from profd.daemon.analyze.torchtraces import TorchTrace, decode, trace_text
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, WindowRow

LARGEST_BYTES = 128 << 20
"""Traces above it are left: it would be many seconds until a table is shown."""
_BEFORE_NS = SECOND_NS
"""What a thread stood in when the window began may have begun that long before."""
_GAPS = 3
"""Samples come at random: 95 of 100 times one of them has come within so many of their mean distances."""
_OPERATORS = ("cpu_op", "user_annotation")


Threads = tuple[int, ...]
"""The rows of one thread: it has another one for each name that it had."""


class IssuingLine(msgspec.Struct, frozen=True):
    """A line of the user's code that was running while an operator did, in so many samples of that operator."""

    file: str
    module_path: str
    line: int
    samples: int

    @property
    def label(self) -> str:
        """The line as it is shown."""
        return f"{self.module_path}:{self.line}"


class Line(NamedTuple):
    """A line of a file; ``module_path`` is what that is called for short."""

    file: str
    module_path: str
    number: int


class Stay(NamedTuple):
    """A thread stood in one line of the user's code, for sure until ``known_ns``, and was seen there at these times."""

    start_ns: int
    end_ns: int
    known_ns: int
    line: Line | None
    moments_ns: list[int]


class Call(NamedTuple):
    """One call of an operator, with all that it called in turn."""

    start_ns: int
    end_ns: int
    name: str


def issuing_lines(reader: RunReader, window: WindowRow) -> dict[str, tuple[IssuingLine, ...]]:
    """Return by the name of each operator the lines that its calls were issued from, the one of most samples first.

    Operators that were too short and too few to be seen are left out. Raises RunUnreadable where the trace is damaged.
    """
    text = trace_text(reader, window) if window.trace_bytes <= LARGEST_BYTES else None
    if text is None:
        return {}
    trace, (error_ns, gap_ns) = decode(window, text), _precision(reader, window)
    seen: defaultdict[str, Counter[Line]] = defaultdict(Counter)
    for threads, calls in _calls_by_thread(reader, window, trace).items():
        intervals = reader.intervals(window.start_ns - _BEFORE_NS, window.end_ns + error_ns, threads)
        stays = _stays(reader, intervals, gap_ns)
        for name, line in tie(stays, calls, error_ns):
            seen[name][line] += 1
    return {
        name: tuple(IssuingLine(*line, count) for line, count in lines.most_common()) for name, lines in seen.items()
    }


def tie(stays: Iterable[Stay], calls: Sequence[Call], error_ns: int) -> Iterator[tuple[str, Line]]:
    """Yield for each sample of a thread the operators that were surely running in it, with its line.

    ``calls`` are sorted, those that are called after their callers.
    """
    opened: list[Call] = []
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
            names = {call.name for call in opened if stays_on or (call.start_ns <= from_ns and to_ns <= call.end_ns)}
            yield from ((name, stay.line) for name in sorted(names))


def _precision(reader: RunReader, window: WindowRow) -> tuple[int, int]:
    """Return by how much times of samples in a window may be off at most, and how far samples are surely apart."""
    recordings = [
        recording
        for recording in reader.recordings(None, window.end_ns)
        if recording.process == window.process and recording.end_ns > window.start_ns
    ]
    error_ns = max((recording.clock_error_ns for recording in recordings), default=0)
    rate_hz = min((recording.rate_hz for recording in recordings), default=1)
    return error_ns, _GAPS * SECOND_NS // max(rate_hz, 1)


def _calls_by_thread(reader: RunReader, window: WindowRow, trace: TorchTrace) -> dict[Threads, list[Call]]:
    """Return the operators in a trace by the Python thread that they belong to."""
    rows = [row for row in reader.threads.values() if row.process == window.process]
    named = {row.os_tid: tuple(other.id for other in rows if other.os_tid == row.os_tid) for row in rows}
    main = next((named[row.os_tid] for row in rows if row.is_main), ())
    calls: defaultdict[Threads, list[Call]] = defaultdict(list)
    for event in trace.events:
        if event.ph == "X" and event.cat in _OPERATORS:
            threads = named.get(event.tid, main) if isinstance(event.tid, int) else main
            calls[threads].append(Call(trace.start_ns(event), trace.end_ns(event), event.name))
    for found in calls.values():
        found.sort(key=lambda call: (call.start_ns, -call.end_ns))
    return {threads: found for threads, found in calls.items() if threads}


def _stays(reader: RunReader, intervals: Iterable[IntervalRow], gap_ns: int) -> Iterator[Stay]:
    """Yield the stays of a thread from its intervals, which are in order of time; a hole ends one."""
    last: Stay | None = None
    for interval in intervals:
        stay = _stay(reader, interval, gap_ns)
        if last and last.line is not None and last.line == stay.line and stay.start_ns <= last.end_ns:
            last = stay._replace(start_ns=last.start_ns, moments_ns=last.moments_ns + stay.moments_ns)
            continue
        if last:
            yield last
        last = stay
    if last:
        yield last


def _stay(reader: RunReader, interval: IntervalRow, gap_ns: int) -> Stay:
    """Return what one interval tells: it begins with a sample, and others follow at times that are not known."""
    start_ns, length_ns = interval.start_ns, interval.duration_ns
    known_ns = max(start_ns + length_ns - gap_ns, start_ns)
    moments_ns = [start_ns + number * length_ns // interval.samples for number in range(1, interval.samples)]
    moments_ns.insert(0, start_ns)
    return Stay(start_ns, start_ns + length_ns, known_ns, _user_line(reader, interval.stack), moments_ns)


def _user_line(reader: RunReader, stack: int) -> Line | None:
    """Return the innermost line of the user's own code, None where there is none."""
    frame = own_frame(reader.frames_of(stack))
    return Line(frame.file, frame.module_path, frame.line) if frame else None
