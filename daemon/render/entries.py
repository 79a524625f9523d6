"""The content of a report's page: columns of numbers and interned text, as the page's scripts decode them.

Plain data; where it comes from is ``extract``'s business, how it is shown the page's.
"""

from __future__ import annotations

import msgspec

from profd.daemon.render.slots import ThreadSlots


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


class GpuEntry(msgspec.Struct, frozen=True):
    """A GPU; utilization is 0 to 1, memory what is used by all processes."""

    title: str
    utilization: Series
    memory_bytes: Series


class EventEntry(msgspec.Struct, frozen=True):
    """An event, in ms from the run's start."""

    at_ms: int
    kind: str
    process: int | None
    text: str


class Extract(msgspec.Struct, frozen=True):
    """The content of a page. Slot 0 starts at ``started_ms`` (of the epoch), slots are ``slot_ms`` long.

    ``known_to_ms`` is when the newest recording ends, from the run's start. A GPU is idle where it is utilized below
    ``gpu_idle_below``.
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
    gpus: list[GpuEntry]
    gpu_idle_below: float
    events: list[EventEntry]
