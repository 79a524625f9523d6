"""What of a run goes into its page: everything that a reader's brush and filters need to count.

Ids of the run file become indices into columns, and text is made visible once, here. How the page shows any of it, and
how it is packed, is none of this module's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.gputracks import IDLE_BELOW
from profd.daemon.analyze.memory import Growth
from profd.daemon.analyze.operators import IssuingLine, issuing_lines
from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.entries import (
    EventEntry,
    Extract,
    FileEntry,
    FrameColumns,
    FunctionColumns,
    OperatorColumns,
    PhaseEntry,
    StackColumns,
    ThreadEntry,
    WindowEntry,
)
from profd.daemon.render.meters import gpu_entries, process_entries
from profd.daemon.render.operators import issuer_of
from profd.daemon.render.plaintext import visible
from profd.daemon.render.slots import ThreadSlots, take_slots
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import EventRow, FrameRow, StackRow, ThreadRow, WindowRow
from profd.daemon.units import percent

WINDOW_LIMIT = 32
"""Windows on a schedule come by the thousand; the last ones are carried."""
OPERATOR_LIMIT = 600
"""Of a window by input shape, those that take the most time."""


def window_entries(reader: RunReader, index: Mapping[int, int]) -> list[WindowEntry]:
    """Return the windows that were taken, the first ones first; ``index`` has the place of each process."""
    taken = [row for row in reader.windows() if not row.error]
    return [_window_entry(reader, row, index) for row in taken[-WINDOW_LIMIT:]]


def _window_entry(reader: RunReader, row: WindowRow, index: Mapping[int, int]) -> WindowEntry:
    operators = reader.operators(row.id)
    kept = sorted(operators, key=lambda one: -(one.self_cpu_ns + one.self_cuda_ns))[:OPERATOR_LIMIT]
    started_ns = reader.info.started_ns
    return WindowEntry(
        process=index[row.process],
        source=visible(row.source),
        start_ms=(row.start_ns - started_ns) // MILLISECOND_NS,
        end_ms=-(-(row.end_ns - started_ns) // MILLISECOND_NS),
        steps=len(reader.window_steps(row.id)),
        device=_device_time(row),
        operators=_columns(kept, issuing_lines(reader, row)),
        left_out=len(operators) - len(kept),
    )


def _device_time(row: WindowRow) -> str:
    """Return how busy the devices of a window were; empty where nothing ran on any."""
    if row.device_busy_ns is None or row.device_idle_ns is None:
        return ""
    whole_ns = row.device_busy_ns + row.device_idle_ns
    return f"device busy {percent(row.device_busy_ns / whole_ns)}" if whole_ns else ""


def _columns(operators: Sequence[OperatorTotals], issuers: Mapping[str, Sequence[IssuingLine]]) -> OperatorColumns:
    columns = {name: [getattr(one, name) for one in operators] for name in OperatorTotals.__struct_fields__}
    for name in ("name", "device", "input_shapes"):
        columns[name] = [visible(text) for text in columns[name]]
    columns["issuer"] = [issuer_of(one, issuers) for one in operators]
    return msgspec.convert(columns, OperatorColumns)


def take_extract(reader: RunReader, phases: PhaseIndex, memory: Iterable[Growth]) -> Extract:
    """Take from a run what its page shows; times are exact to a slot, counts are exact.

    ``memory`` is how the memory of its processes goes on.
    """
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
        stacks=_stack_columns(stacks, frames, phases),
        threads=_thread_entries(reader, slots.threads, stacks, processes),
        processes=process_entries(reader, processes, lives, memory),
        gpus=gpu_entries(reader),
        gpu_idle_below=IDLE_BELOW,
        parts=slots.parts,
        windows=window_entries(reader, processes),
        events=[_event_entry(row, processes, info.started_ns) for row in reader.events()],
    )


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


def _event_entry(row: EventRow, processes: dict[int, int], started_ns: int) -> EventEntry:
    return EventEntry(
        at_ms=(row.at_ns - started_ns) // MILLISECOND_NS,
        kind=visible(row.kind),
        process=None if row.process is None else processes.get(row.process),
        text=visible(row.text),
    )
