"""What of a run goes into its page: everything that a reader's brush and filters need to count again.

Ids of the run file become indices into columns, and text is made visible once, here. How the page shows any of it, and
how it is packed, is none of this module's business.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from profd.daemon.analyze.cover import Cover
from profd.daemon.analyze.lives import Lives, take_lives
from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.slots import ThreadSlots, take_slots
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import EventRow, FrameRow, PointRow, ProcessRow, StackRow, ThreadRow

POINT_LIMIT = 1_200
"""Points kept of one series: about as many as a wide screen has columns."""
CHARTED_PROCESSES = 64
"""Series are kept of the first so many processes: a job that starts thousands would fill the page with them."""
_DIGITS = {"cpu_cores": 3, "rss_bytes": -4}
"""Decimal places that are worth their bytes."""


class PhaseEntry(msgspec.Struct, frozen=True):
    """A phase with what stands for it: a color, and a letter where there is none."""

    name: str
    letter: str
    color: str


class FileEntry(msgspec.Struct, frozen=True):
    """A source file: its full path, and the path from its outermost package down."""

    path: str
    module: str
    library: bool


class FunctionColumns(msgspec.Struct, frozen=True):
    """Functions; ``file`` indexes the files."""

    name: list[str]
    file: list[int]


class FrameColumns(msgspec.Struct, frozen=True):
    """Functions at lines; ``function`` indexes the functions."""

    function: list[int]
    line: list[int]
    source: list[str | None]


class StackColumns(msgspec.Struct, frozen=True):
    """The prefix tree of stacks, callers first; ``up`` is how far back the calling stack lies, 0 at a root."""

    up: list[int]
    frame: list[int]
    phase: list[int]


class ThreadEntry(msgspec.Struct, frozen=True):
    """A thread and its samples; ``slots.stacks`` index the stacks."""

    process: int
    name: str
    main: bool
    slots: ThreadSlots


class Series(msgspec.Struct, frozen=True):
    """A series of numbers: each value with its distance to the one before, in ms (of the first: to the run's start)."""

    steps_ms: list[int]
    values: list[float]


class CoverColumns(msgspec.Struct, frozen=True):
    """What recordings cover of a process: how much in all by a few times, and evenly between two of them.

    Both are columns of distances in ms: of the times (of the first: to the run's start), and of what is covered.
    """

    steps_ms: list[int]
    covered_ms: list[int]


class ProcessEntry(msgspec.Struct, frozen=True):
    """A process; ``parent`` indexes the processes, times are ms from the run's start."""

    title: str
    role: str
    pid: int
    parent: int | None
    command: str
    seen_ms: int
    ended_ms: int | None
    exit_code: int | None
    exit_signal: int | None
    cover: CoverColumns
    cpu_cores: Series
    rss_bytes: Series


class EventEntry(msgspec.Struct, frozen=True):
    """An event, in ms from the run's start."""

    at_ms: int
    kind: str
    process: int | None
    text: str


class Extract(msgspec.Struct, frozen=True):
    """The content of a page. Slot 0 starts at ``started_ms`` (of the epoch), slots are ``slot_ms`` long.

    ``known_to_ms`` is when the newest recording ends, from the run's start.
    """

    started_ms: int
    duration_ms: int
    known_to_ms: int
    slot_ms: int
    phases: list[PhaseEntry]
    files: list[FileEntry]
    functions: FunctionColumns
    frames: FrameColumns
    stacks: StackColumns
    threads: list[ThreadEntry]
    processes: list[ProcessEntry]
    events: list[EventEntry]


def take_extract(reader: RunReader, phases: PhaseIndex | None = None) -> Extract:
    """Take from a run what its page shows; times are exact to a slot, counts are exact."""
    slots = take_slots(reader)
    stacks = _used_stacks(reader, slots.threads.values())
    frames = _Frames(reader.frames[row.frame] for row in stacks)
    processes = {row.id: index for index, row in enumerate(reader.processes.values())}
    info, lives = reader.info, take_lives(reader)
    return Extract(
        started_ms=info.started_ns // MILLISECOND_NS,
        duration_ms=max((info.end_ns - info.started_ns) // MILLISECOND_NS, 1),
        known_to_ms=(lives.known_to_ns - info.started_ns) // MILLISECOND_NS,
        slot_ms=slots.width_ms,
        phases=[PhaseEntry(phase.name, phase.letter, phase.color) for phase in PHASES],
        files=frames.files,
        functions=frames.functions,
        frames=frames.columns,
        stacks=_stack_columns(stacks, frames, phases or PhaseIndex(reader)),
        threads=_thread_entries(reader, slots.threads, stacks, processes),
        processes=_process_entries(reader, processes, lives),
        events=[_event_entry(row, processes, info.started_ns) for row in reader.events()],
    )


def process_title(row: ProcessRow) -> str:
    """Return what a process is called: ``main``, ``rank 0``, ``worker 1``, ``helper``."""
    if row.role == "main":
        return "main" if row.rank is None else f"rank {row.rank}"
    return row.role if row.ordinal is None else f"{row.role} {row.ordinal}"


def _used_stacks(reader: RunReader, threads: Iterable[ThreadSlots]) -> list[StackRow]:
    """Return the stacks that have samples and those they were called from, callers first."""
    used: set[int] = set()
    for thread in threads:
        for stack in set(thread.stacks):
            while stack and stack not in used:
                used.add(stack)
                stack = reader.stacks[stack].parent
    # A stack is written after the one that it was called from, so the order of ids is callers first.
    return [reader.stacks[stack] for stack in sorted(used)]


class _Frames:
    """The columns of frames, with their functions and files interned."""

    def __init__(self, rows: Iterable[FrameRow]) -> None:
        self.files: list[FileEntry] = []
        self.functions = FunctionColumns([], [])
        self.columns = FrameColumns([], [], [])
        self.index: dict[int, int] = {}
        self._file_index: dict[str, int] = {}
        self._function_index: dict[tuple[str, str], int] = {}
        for row in rows:
            if row.id not in self.index:
                self._add(row)

    def _add(self, row: FrameRow) -> None:
        self.index[row.id] = len(self.columns.line)
        self.columns.function.append(self._function(row))
        self.columns.line.append(row.line)
        self.columns.source.append(None if row.source is None else visible(row.source))

    def _function(self, row: FrameRow) -> int:
        key = (row.function, row.file)
        if key not in self._function_index:
            self._function_index[key] = len(self.functions.name)
            self.functions.name.append(visible(row.function))
            self.functions.file.append(self._file(row))
        return self._function_index[key]

    def _file(self, row: FrameRow) -> int:
        if row.file not in self._file_index:
            self._file_index[row.file] = len(self.files)
            self.files.append(FileEntry(visible(row.file), visible(row.module_path), row.is_library))
        return self._file_index[row.file]


def _stack_columns(stacks: list[StackRow], frames: _Frames, phases: PhaseIndex) -> StackColumns:
    index = {row.id: at for at, row in enumerate(stacks)}
    numbers = {phase.name: number for number, phase in enumerate(PHASES)}
    return StackColumns(
        up=[at - index[row.parent] if row.parent else 0 for at, row in enumerate(stacks)],
        frame=[frames.index[row.frame] for row in stacks],
        phase=[numbers[phases.of_stack(row.id)] for row in stacks],
    )


def _thread_entries(
    reader: RunReader, slots: dict[int, ThreadSlots], stacks: list[StackRow], processes: dict[int, int]
) -> list[ThreadEntry]:
    index = {row.id: at for at, row in enumerate(stacks)}
    order = sorted(slots, key=lambda thread: _thread_order(reader, reader.threads[thread]))
    return [
        ThreadEntry(
            process=processes[reader.threads[thread].process],
            name=visible(reader.threads[thread].name),
            main=reader.threads[thread].is_main,
            slots=msgspec.structs.replace(slots[thread], stacks=[index[stack] for stack in slots[thread].stacks]),
        )
        for thread in order
    ]


def _thread_order(reader: RunReader, thread: ThreadRow) -> tuple[bool, int, int, bool, int]:
    """Order the training processes first, by rank, and the main thread of each before its others."""
    process = reader.processes[thread.process]
    return (process.role != "main", process.rank or 0, process.id, not thread.is_main, thread.id)


def _process_entries(reader: RunReader, index: dict[int, int], lives: Lives) -> list[ProcessEntry]:
    started_ns = reader.info.started_ns
    charted = set(list(index)[:CHARTED_PROCESSES])
    return [
        ProcessEntry(
            title=process_title(row),
            role=row.role,
            pid=row.pid,
            parent=index.get(row.parent) if row.parent is not None else None,
            command=visible(" ".join(row.command)),
            seen_ms=(row.seen_ns - started_ns) // MILLISECOND_NS,
            ended_ms=None if row.ended_ns is None else (row.ended_ns - started_ns) // MILLISECOND_NS,
            exit_code=row.exit_code,
            exit_signal=row.exit_signal,
            cover=_cover(lives.cover(row.id), started_ns),
            cpu_cores=_series(reader, "cpu_cores", row.id if row.id in charted else None),
            rss_bytes=_series(reader, "rss_bytes", row.id if row.id in charted else None),
        )
        for row in reader.processes.values()
    ]


def _cover(cover: Cover, started_ns: int) -> CoverColumns:
    edges = cover.edges()
    together = -(-len(edges) // POINT_LIMIT)
    if together > 1:
        edges = [*edges[:-1:together], edges[-1]]
    times_ms = [(at_ns - started_ns) // MILLISECOND_NS for at_ns, _ in edges]
    covered_ms = [covered_ns // MILLISECOND_NS for _, covered_ns in edges]
    return CoverColumns(_distances(times_ms), _distances(covered_ms))


def _distances(values: list[int]) -> list[int]:
    """Return the distance of each value to the one before, of the first to 0."""
    return [value - before for value, before in zip(values, [0, *values], strict=False)]


def _series(reader: RunReader, name: str, process: int | None) -> Series:
    found = reader.find_series(name, process) if process is not None else None
    points = _thin(reader.points(found.id)) if found else []
    times_ms = [(point.at_ns - reader.info.started_ns) // MILLISECOND_NS for point in points]
    return Series(
        steps_ms=_distances(times_ms),
        values=[round(point.value, _DIGITS[name]) for point in points],
    )


def _thin(points: list[PointRow]) -> list[PointRow]:
    """Return at most ``POINT_LIMIT`` points, each the mean of as many neighbors, at the time of the last of them."""
    together = -(-len(points) // POINT_LIMIT)
    if together <= 1:
        return points
    groups = [points[at : at + together] for at in range(0, len(points), together)]
    return [PointRow(group[-1].at_ns, sum(point.value for point in group) / len(group)) for group in groups]


def _event_entry(row: EventRow, processes: dict[int, int], started_ns: int) -> EventEntry:
    return EventEntry(
        at_ms=(row.at_ns - started_ns) // MILLISECOND_NS,
        kind=visible(row.kind),
        process=None if row.process is None else processes.get(row.process),
        text=visible(row.text),
    )
