"""The hangs of a run, and how its target died.

Made from what is in the file anyway, so it is there, too, where profd was killed together with its target. Of a run
that ended with 0, or that lives, there is none.
"""

from __future__ import annotations

import re
from pathlib import PurePath

import msgspec

from profd.daemon import processes
from profd.daemon.analyze.phases import own_frame
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.naming import signal_name
from profd.daemon.secrets import mask_line
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HangGroup, Stand
from profd.daemon.store.rows import FrameRow, HangRow, PointRow, ProcessRow, ThreadRow


class HangPlace(msgspec.Struct, frozen=True):
    """A stack in which threads stood; ``frames`` are ``name (file:line)`` from the root to the leaf."""

    frames: tuple[str, ...]
    stands: tuple[Stand, ...]


class Hang(msgspec.Struct, frozen=True):
    """A time without progress, in seconds from the start of the run.

    ``since_s`` is when it began, ``told_s`` when profd was sure of it, ``ended_s`` when the run went on; None where it
    did not. ``cause`` is its group of causes, as docs/hangs.md lists them.
    """

    since_s: float
    told_s: float
    ended_s: float | None
    cause: str
    text: str
    places: tuple[HangPlace, ...]
    facts: tuple[str, ...]


def take_hangs(reader: RunReader, selection: Selection) -> tuple[Hang, ...]:
    """Return the hangs that were told in the selection's range of time, in order."""
    from_ns, to_ns = selection.from_ns or 0, selection.to_ns
    rows = [row for row in reader.hangs() if row.at_ns >= from_ns and (to_ns is None or row.since_ns < to_ns)]
    return tuple(_hang(row, reader.info.started_ns) for row in rows)


def _hang(row: HangRow, started_ns: int) -> Hang:
    return Hang(
        since_s=(row.since_ns - started_ns) / SECOND_NS,
        told_s=(row.at_ns - started_ns) / SECOND_NS,
        ended_s=None if row.ended_ns is None else (row.ended_ns - started_ns) / SECOND_NS,
        cause=row.cause,
        text=row.text,
        places=tuple(map(_place, row.report.groups)),
        facts=row.report.facts,
    )


def _place(group: HangGroup) -> HangPlace:
    frames = tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in group.frames)
    return HangPlace(frames, group.stands)


_LAST_NS = 60 * SECOND_NS
_SHORTLY_NS = 15 * SECOND_NS
_CURVE_POINTS = 60
_OUTPUT_BYTES = 64 << 10
_OUTPUT_LINES = 20
_LONGEST_LINE = 2000
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")


class LastPlace(msgspec.Struct, frozen=True):
    """Where a training process was seen last, ``before_end_s`` ahead of the end; ``frames`` from root to leaf."""

    pid: int
    rank: int | None
    frames: tuple[str, ...]
    place: str
    source: str | None
    before_end_s: float


class PostMortem(msgspec.Struct, frozen=True):
    """How a target died.

    ``rss_bytes`` is the memory of the main process at the end of its last minute, ``memory`` the curve of that minute:
    seconds before the end, bytes. ``output`` are the last lines that the target wrote, where they were kept;
    ``error`` the last of them that names an exception.
    """

    code: int | None
    signal: str | None
    out_of_memory: str | None
    last: tuple[LastPlace, ...]
    rss_bytes: int | None
    memory: tuple[tuple[float, int], ...]
    others: tuple[int, ...]
    """PIDs of other processes that a signal or an error ended shortly before."""
    output: tuple[str, ...]
    error: str | None

    @property
    def cause(self) -> str:
        """What ended the target, in a few words."""
        if self.out_of_memory is not None:
            return self.out_of_memory
        if self.signal is not None:
            return f"the target was ended by {self.signal}"
        if self.code is not None:
            return f"the target ended with {self.code}"
        return "profd was ended before its target, or with it"


def take_post_mortem(reader: RunReader) -> PostMortem | None:
    """Return how the target of a run died; None where it lives, ended with 0, or outlived the recording."""
    info = reader.info
    died_unseen = info.state == "interrupted" and not processes.is_running(info.pid, info.start_ticks)
    if not died_unseen and info.exit_signal is None and not info.exit_code:
        return None
    memory = _memory(reader)
    output = tuple(mask_line(line[:_LONGEST_LINE]) for line in _output(reader))
    return PostMortem(
        code=info.exit_code,
        signal=None if info.exit_signal is None else signal_name(info.exit_signal),
        out_of_memory=_out_of_memory(reader),
        last=tuple(place for thread in reader.main_threads() if (place := _last_place(reader, thread)) is not None),
        rss_bytes=memory[-1][1] if memory else None,
        memory=memory,
        others=tuple(row.pid for row in reader.processes.values() if _died_with_it(reader, row)),
        output=output,
        error=next((line for line in reversed(output) if _ERROR_LINE.match(line)), None),
    )


def _last_place(reader: RunReader, thread: ThreadRow) -> LastPlace | None:
    last = None
    for interval in reader.intervals(reader.info.end_ns - _LAST_NS, None, [thread.id]):
        last = interval
    if last is None:
        return None
    frames = reader.frames_of(last.stack)
    own = own_frame(frames) or frames[-1]
    process = reader.processes[thread.process]
    before_ns = max(reader.info.end_ns - last.start_ns - last.duration_ns, 0)
    labels = tuple(frame.label for frame in frames)
    return LastPlace(process.pid, process.rank, labels, _place_of_frame(own), own.source, before_ns / SECOND_NS)


def _place_of_frame(frame: FrameRow) -> str:
    return f"{frame.function} ({PurePath(frame.file).name}:{frame.line})"


def _out_of_memory(reader: RunReader) -> str | None:
    """Return what was said of processes that the kernel ended for want of memory, shortly before the end."""
    since_ns = reader.info.end_ns - _SHORTLY_NS
    said = [event.text for event in reader.events() if event.kind == "oom" and event.at_ns >= since_ns]
    return said[-1] if said else None


def _memory(reader: RunReader) -> tuple[tuple[float, int], ...]:
    """Return the memory of the first training process over its last minute."""
    main = next((row for row in reader.processes.values() if row.role == "main"), None)
    series = reader.find_series("rss_bytes", main.id) if main else None
    end_ns = reader.info.end_ns
    points: list[PointRow] = reader.points(series.id, end_ns - _LAST_NS) if series else []
    held = [point for point in points if point.value]  # a process that has ended and is not yet reaped has none
    return tuple(((end_ns - point.at_ns) / SECOND_NS, int(point.value)) for point in held[-_CURVE_POINTS:])


def _died_with_it(reader: RunReader, row: ProcessRow) -> bool:
    """Say whether another process of the tree was ended by a signal or an error, shortly before the target."""
    if row.pid == reader.info.pid or row.ended_ns is None or not (row.exit_signal or row.exit_code):
        return False
    return row.ended_ns >= reader.info.end_ns - _SHORTLY_NS


def _output(reader: RunReader) -> tuple[str, ...]:
    """Return the last lines that the target wrote; of a line that was written over, what stood there last."""
    data = b"".join(row.data for row in reader.output())[-_OUTPUT_BYTES:]
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in data.decode(errors="replace").split("\n"))
    return tuple([line for line in lines if line.strip()][-_OUTPUT_LINES:])
