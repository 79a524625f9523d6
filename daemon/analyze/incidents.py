"""The hangs of a run, and how its target died.

Both come from records that every run file has, so they are there even if profd was killed together
with its target. A run that lives, ended with 0, or was stopped by Ctrl-C has no post mortem.
"""

from __future__ import annotations

import re
from pathlib import PurePath

import msgspec

from profd.daemon import processes
from profd.daemon.analyze.phases import own_frame
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import points_of
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.frameworks.outofmemory import full_memory
from profd.daemon.naming import exit_words, is_stopped_by_user, signal_name
from profd.daemon.secrets import mask_line
from profd.daemon.store.merge import hosts_of, nodes_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HangFound, RankBehind, Stand
from profd.daemon.store.rows import RunInfo, ThreadRow
from profd.daemon.timerange import TimeRange


class HangPlace(msgspec.Struct, frozen=True):
    """A stack in which threads stood.

    ``frames`` are ``name (file:line)`` from the root to the leaf, ``native`` those that the leaf
    called, ``name (file)`` from the innermost on.
    """

    frames: tuple[str, ...]
    stands: tuple[Stand, ...]
    native: tuple[str, ...] = ()


class Hang(msgspec.Struct, frozen=True):
    """A time without progress, in seconds from the start of the run.

    ``since_s`` is when it began, ``reported_s`` when profd was sure of it, ``ended_s`` when the run
    went on (None: it did not). ``cause`` is its group of causes, as docs/hangs.md lists them,
    ``behind`` the ranks that others wait for.
    """

    since_s: float
    reported_s: float
    ended_s: float | None
    cause: str
    text: str
    places: tuple[HangPlace, ...]
    facts: tuple[str, ...]
    behind: tuple[RankBehind, ...] = ()


def take_hangs(reader: RunReader, selection: Selection) -> tuple[Hang, ...]:
    """Return the hangs that were reported in the selection's range of time, in order.

    Of a job of several nodes, those of one time are one.
    """

    def seconds(at_ns: int) -> float:
        return (at_ns - reader.info.started_ns) / SECOND_NS

    found = []
    for row in _hangs_of(reader):
        if row.at_ns < selection.time.from_ns or row.since_ns >= selection.time.to_ns:
            continue
        places = tuple(
            HangPlace(
                tuple(f"{one.function} ({one.file}:{one.line})" for one in group.frames),
                group.stands,
                group.native,
            )
            for group in row.report.groups
        )
        found.append(
            Hang(
                since_s=seconds(row.since_ns),
                reported_s=seconds(row.at_ns),
                ended_s=None if row.ended_ns is None else seconds(row.ended_ns),
                cause=row.report.cause,
                text=row.text,
                places=places,
                facts=row.report.facts,
                behind=row.report.behind,
            )
        )
    return tuple(found)


def _hangs_of(reader: RunReader) -> list[HangFound]:
    if not nodes_of(reader):
        return reader.hangs()
    from profd.daemon.hangs.joined import join_hangs  # only for several nodes, as it imports much

    hosts = hosts_of(reader)
    ranks = {row.rank: hosts[row.id] for row in reader.processes.values() if row.rank is not None}
    return join_hangs(reader.hangs(), ranks)


_LAST_LINES = 20
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")


class LastPlace(msgspec.Struct, frozen=True):
    """Where a training process was seen last, ``before_end_s`` before the end.

    ``frames`` are from root to leaf.
    """

    pid: int
    rank: int | None
    frames: tuple[str, ...]
    place: str
    source: str | None
    before_end_s: float


class PostMortem(msgspec.Struct, frozen=True):
    """How a target died.

    ``rss_bytes`` is the memory of the main process at the end of its last minute, ``memory`` the
    curve of that minute: seconds before the end, bytes. ``others`` are the PIDs of other processes
    that a signal or an error ended shortly before. ``output`` are the last lines that the target
    wrote, if they were kept; ``error`` is the last one that names an exception, maybe before them.
    """

    code: int | None
    signal: str | None
    out_of_memory: str | None
    last: tuple[LastPlace, ...]
    rss_bytes: int | None
    memory: tuple[tuple[float, int], ...]
    others: tuple[int, ...]
    output: tuple[str, ...]
    error: str | None

    @property
    def cause(self) -> str:
        if self.out_of_memory is not None:
            return self.out_of_memory
        if self.signal is None and self.code is None:
            return "profd was ended before its target, or with it"
        return f"the target {exit_words(self.code, self.signal)}"


def take_post_mortem(reader: RunReader) -> PostMortem | None:
    """Return how the target of a run died.

    None if it lives, ended with 0, was stopped by its user, or outlived the recording.
    """
    info = reader.info
    ended_by = signal_name(info.exit_signal)
    if is_stopped_by_user(info.exit_code, ended_by):
        return None
    if not (ended_by or info.exit_code or _died_unseen(info)):
        return None
    shortly_ns = info.end_ns - 15 * SECOND_NS
    killed = [event.text for event in reader.events(EventKind.OOM) if event.at_ns >= shortly_ns]
    memory = _last_memory(reader)
    output = _output(reader)
    error = next(filter(_is_error, reversed(output)), None)
    places = (_last_place(reader, thread) for thread in reader.main_threads())
    return PostMortem(
        code=info.exit_code,
        signal=ended_by,
        out_of_memory=killed[-1] if killed else full_memory(error or ""),
        last=tuple(filter(None, places)),
        rss_bytes=memory[-1][1] if memory else None,
        memory=memory,
        others=_failed_others(reader, shortly_ns),
        output=output[-_LAST_LINES:],
        error=error,
    )


def _died_unseen(info: RunInfo) -> bool:
    return info.state == "interrupted" and not processes.is_running(*info.target)


def _last_memory(reader: RunReader) -> tuple[tuple[float, int], ...]:
    """Return the memory of the main process in its last minute: seconds before the end, bytes."""
    main = next((row for row in reader.processes.values() if row.is_main), None)
    if main is None:
        return ()
    end_ns = reader.info.end_ns
    points = points_of(reader, "rss_bytes", main.id, Selection(from_ns=end_ns - MINUTE_NS))
    # A process that has ended and is not yet reaped has none.
    held = [point for point in points if point.value][-60:]
    return tuple(((end_ns - point.at_ns) / SECOND_NS, int(point.value)) for point in held)


def last_output(reader: RunReader) -> tuple[str, ...]:
    """Return the last 20 lines of output; of a line that was written over, its last text."""
    return _output(reader)[-_LAST_LINES:]


def _output(reader: RunReader) -> tuple[str, ...]:
    written = b"".join(row.data for row in reader.output())[-(64 << 10) :].decode(errors="replace")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in written.split("\n"))
    return tuple(mask_line(line[:2000]) for line in lines if line.strip())


def _is_error(line: str) -> bool:
    """Say whether a line names an exception, other than a launcher's of that of its process."""
    is_one = "ChildFailedError" not in line and _ERROR_LINE.match(line)
    return bool(is_one or full_memory(line))


def _failed_others(reader: RunReader, since_ns: int) -> tuple[int, ...]:
    """Return the PIDs of other processes that a signal or an error ended since a moment."""
    ended = (row for row in reader.processes.values() if (row.ended_ns or 0) >= since_ns)
    failed = (row.pid for row in ended if row.exit_signal or row.exit_code)
    return tuple(pid for pid in failed if pid != reader.info.target.pid)


def _last_place(reader: RunReader, thread: ThreadRow) -> LastPlace | None:
    rows = list(reader.intervals(TimeRange(reader.info.end_ns - MINUTE_NS), [thread.id]))
    if not rows:
        return None
    # What Python does as it ends, for seconds after an error, has no line of the script in it.
    of_the_script = (
        row for row in reversed(rows) if own_frame(reader.frames_of(row.stack)) is not None
    )
    last = next(of_the_script, rows[-1])
    frames, process = reader.frames_of(last.stack), reader.processes[thread.process]
    own = own_frame(frames) or frames[-1]
    return LastPlace(
        process.pid,
        process.rank,
        frames=tuple(frame.label for frame in frames),
        place=f"{own.function} ({PurePath(own.file).name}:{own.line})",
        source=own.source,
        before_end_s=max(reader.info.end_ns - last.end_ns, 0) / SECOND_NS,
    )
