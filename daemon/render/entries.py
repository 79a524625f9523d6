"""The content of a report's page: columns of numbers and interned text, as the page's scripts decode them.

Plain data; where it comes from is ``extract``'s business, how it is shown the page's.
"""

from __future__ import annotations

import msgspec

from profd.daemon.render.htmlpage import Columns
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


class FunctionColumns(Columns, frozen=True):
    """Functions; ``file`` indexes the files."""

    name: list[str]
    file: list[int]


class FrameColumns(Columns, frozen=True):
    """Functions at lines; ``function`` indexes the functions."""

    function: list[int]
    line: list[int]
    source: list[str | None]


class StackColumns(Columns, frozen=True):
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


class Series(Columns, frozen=True):
    """A series of numbers, each with the time over which it holds; what lies between these times is unknown.

    ``steps_ms`` are the distances of their ends in ms (of the first: to the run's start). A value holds since the end
    of the one before, but for ``gaps_ms`` after it; ``gap_steps`` are the places of the values before which a gap lies,
    each as its distance to the one before. A number is ``values[i]`` divided by ten to the power of ``digits``.
    """

    steps_ms: list[int]
    values: list[int]
    digits: int
    gap_steps: list[int]
    gaps_ms: list[int]


class CoverColumns(Columns, frozen=True):
    """What recordings cover of a process: how much in all by a few times, and evenly between two of them.

    Both are columns of distances in ms: of the times (of the first: to the run's start), and of what is covered.
    """

    steps_ms: list[int]
    covered_ms: list[int]


class MemoryEntry(msgspec.Struct, frozen=True):
    """A kind of memory of a process over time; ``growth`` is what is known of how it goes on, in words."""

    title: str
    bytes: Series
    growth: str


class ProcessEntry(msgspec.Struct, frozen=True):
    """A process; ``parent`` indexes the processes, times are ms from the run's start.

    ``steps_per_s`` is empty where no loop counter was read.
    """

    title: str
    role: str
    rank: int | None
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
    steps_per_s: Series
    memory: list[MemoryEntry]


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


class OperatorColumns(msgspec.Struct, frozen=True):
    """Operators of a window as columns, by input shape; what they mean stands in ``records.OperatorTotals``.

    ``issuer`` is the line of the user's code that an operator was issued from, empty where samples name none.
    """

    name: list[str]
    device: list[str]
    is_annotation: list[bool]
    input_shapes: list[str]
    calls: list[int]
    self_cpu_ns: list[int]
    cpu_total_ns: list[int]
    self_cuda_ns: list[int]
    cuda_total_ns: list[int]
    self_cpu_bytes: list[int]
    cpu_bytes: list[int]
    self_cuda_bytes: list[int]
    cuda_bytes: list[int]
    flops: list[int]
    issuer: list[str]


class WindowEntry(msgspec.Struct, frozen=True):
    """A torch.profiler window, in ms from the run's start; ``left_out`` operators are not carried."""

    process: int
    source: str
    start_ms: int
    end_ms: int
    steps: int
    device: str
    operators: OperatorColumns
    left_out: int


class Extract(msgspec.Struct, frozen=True):
    """The content of a page. Slot 0 starts at ``started_ms`` (of the epoch), slots are ``slot_ms`` long.

    ``known_to_ms`` is when the newest recording ends, from the run's start. A GPU is idle where it is utilized below
    ``gpu_idle_below``. ``parts`` names the conditions of ``ThreadEntry.slots.parts``.
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
    parts: list[tuple[str, ...]]
    windows: list[WindowEntry]
    events: list[EventEntry]
