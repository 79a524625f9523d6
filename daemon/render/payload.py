"""What a report's page carries: all that it needs to count a selection, as columns of numbers and text.

Ids of the run file become indices into columns, and text is made visible once, here. The page's scripts decode it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.memory import Growth
from profd.daemon.analyze.operators import issuing_lines
from profd.daemon.analyze.phases import PHASES, Phase, PhaseIndex
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.buckets import ThreadBuckets, take_buckets
from profd.daemon.render.htmlpage import Columns
from profd.daemon.render.operators import issuer_of
from profd.daemon.render.plaintext import visible
from profd.daemon.render.seriespayload import GpuEntry, ProcessEntry, gpu_entries, process_entries
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import FrameRow, StackRow, WindowRow
from profd.daemon.store.stepfunction import IDLE_BELOW
from profd.daemon.units import percent

WINDOW_LIMIT = 32
"""Windows on a schedule come by the thousand; the last ones are carried."""
OPERATOR_LIMIT = 600
"""Of a window by input shape, those that take the most time."""


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
    """A thread and its samples; ``buckets.stacks`` index the stacks."""

    process: int
    name: str
    main: bool
    buckets: ThreadBuckets


class EventEntry(msgspec.Struct, frozen=True):
    """An event, in ms from the run's start."""

    at_ms: int
    kind: str
    process: int | None
    text: str


class WindowEntry(msgspec.Struct, frozen=True):
    """A torch.profiler window, in ms from the run's start; ``left_out`` operators are not carried.

    ``operators`` are columns by name: the fields of ``records.OperatorTotals``, and as ``issuer`` the line of the
    user's code that an operator was issued from, empty where samples name none.
    """

    process: int
    source: str
    start_ms: int
    end_ms: int
    steps: int
    device: str
    operators: dict[str, list[bool | int | str]]
    left_out: int


class Payload(msgspec.Struct, frozen=True):
    """The content of a page. Bucket 0 starts at ``started_ms`` (of the epoch), buckets are ``bucket_ms`` long.

    ``known_to_ms`` is when the newest recording ends, from the run's start. A GPU is idle where it is utilized below
    ``gpu_idle_below``. ``parts`` names the conditions of ``ThreadEntry.buckets.parts``.
    """

    started_ms: int
    duration_ms: int
    known_to_ms: int
    bucket_ms: int
    phases: list[Phase]
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


class FunctionIndex:
    """Functions and their files, each once; two frames are of one function if its name and ``path_of`` are the same."""

    def __init__(self, path_of: Callable[[FrameRow], str]) -> None:
        self.files: list[FileEntry] = []
        self.functions = FunctionColumns([], [])
        self._path_of = path_of
        self._file_index: dict[str, int] = {}
        self._index: dict[tuple[str, str], int] = {}

    def of(self, frame: FrameRow) -> int:
        path = self._path_of(frame)
        key = (frame.function, path)
        if key not in self._index:
            if path not in self._file_index:
                self._file_index[path] = len(self.files)
                self.files.append(FileEntry(visible(frame.file), visible(frame.module_path), frame.is_library))
            self._index[key] = len(self.functions.name)
            self.functions.name.append(visible(frame.function))
            self.functions.file.append(self._file_index[path])
        return self._index[key]


def take_payload(reader: RunReader, phases: PhaseIndex, memory: Iterable[Growth]) -> Payload:
    """Take what the page shows; times are exact to a time bucket, counts are exact.

    ``memory`` is how the memory of the processes grows.
    """
    buckets = take_buckets(reader)
    stacks = _used_stacks(reader, buckets.threads.values())
    functions = FunctionIndex(lambda frame: frame.file)
    frames = list({row.frame: reader.frames[row.frame] for row in stacks}.values())
    frame_index = {frame.id: at for at, frame in enumerate(frames)}
    stack_index = {row.id: at for at, row in enumerate(stacks)}
    numbers = {phase.name: number for number, phase in enumerate(PHASES)}
    processes = {row.id: index for index, row in enumerate(reader.processes.values())}
    info, lives = reader.info, take_lives(reader)

    def thread_order(thread: int) -> tuple[bool, int, int, bool, int]:
        """Order the training processes first, by rank, and the main thread of each before its others."""
        row = reader.threads[thread]
        process = reader.processes[row.process]
        return (process.role != "main", process.rank or 0, process.id, not row.is_main, thread)

    return Payload(
        started_ms=info.started_ns // MILLISECOND_NS,
        duration_ms=max((info.end_ns - info.started_ns) // MILLISECOND_NS, 1),
        known_to_ms=(lives.known_to_ns - info.started_ns) // MILLISECOND_NS,
        bucket_ms=buckets.width_ms,
        phases=list(PHASES),
        frames=FrameColumns(
            function=[functions.of(frame) for frame in frames],
            line=[frame.line for frame in frames],
            source=[None if frame.source is None else visible(frame.source) for frame in frames],
        ),
        files=functions.files,
        functions=functions.functions,
        stacks=StackColumns(
            up=[at - stack_index[row.parent] if row.parent else 0 for at, row in enumerate(stacks)],
            frame=[frame_index[row.frame] for row in stacks],
            phase=[numbers[phases.of_stack(row.id)] for row in stacks],
        ),
        threads=[
            ThreadEntry(
                process=processes[reader.threads[thread].process],
                name=visible(reader.threads[thread].name),
                main=reader.threads[thread].is_main,
                buckets=msgspec.structs.replace(of_thread, stacks=[stack_index[stack] for stack in of_thread.stacks]),
            )
            for thread in sorted(buckets.threads, key=thread_order)
            for of_thread in [buckets.threads[thread]]
        ],
        processes=process_entries(reader, processes, lives, memory),
        gpus=gpu_entries(reader),
        gpu_idle_below=IDLE_BELOW,
        parts=buckets.parts,
        windows=[
            _window(reader, row, processes)
            for row in [row for row in reader.windows() if not row.error][-WINDOW_LIMIT:]
        ],
        events=[
            EventEntry(
                at_ms=(row.at_ns - info.started_ns) // MILLISECOND_NS,
                kind=visible(row.kind),
                process=None if row.process is None else processes.get(row.process),
                text=visible(row.text),
            )
            for row in reader.events()
        ],
    )


def _used_stacks(reader: RunReader, threads: Iterable[ThreadBuckets]) -> list[StackRow]:
    """Return the stacks that have samples and those they were called from, callers first."""
    used: set[int] = set()
    for thread in threads:
        for stack in set(thread.stacks):
            while stack and stack not in used:
                used.add(stack)
                stack = reader.stacks[stack].parent
    # A stack is written after the one that it was called from, so the order of ids is callers first.
    return [reader.stacks[stack] for stack in sorted(used)]


def _window(reader: RunReader, row: WindowRow, processes: Mapping[int, int]) -> WindowEntry:
    operators, issuers = reader.operators(row.id), issuing_lines(reader, row)
    kept = sorted(operators, key=lambda one: -(one.self_cpu_ns + one.self_cuda_ns))[:OPERATOR_LIMIT]
    columns = {name: [getattr(one, name) for one in kept] for name in OperatorTotals.__struct_fields__}
    for name in ("name", "device", "input_shapes"):
        columns[name] = [visible(text) for text in columns[name]]
    columns["issuer"] = [issuer_of(one, issuers) for one in kept]
    busy_ns, idle_ns = row.device_busy_ns or 0, row.device_idle_ns
    is_known = row.device_busy_ns is not None and idle_ns is not None and busy_ns + idle_ns > 0
    return WindowEntry(
        process=processes[row.process],
        source=visible(row.source),
        start_ms=(row.start_ns - reader.info.started_ns) // MILLISECOND_NS,
        end_ms=-(-(row.end_ns - reader.info.started_ns) // MILLISECOND_NS),
        steps=len(reader.window_steps(row.id)),
        device=f"device busy {percent(busy_ns / (busy_ns + (idle_ns or 0)))}" if is_known else "",
        operators=columns,
        left_out=len(operators) - len(kept),
    )
