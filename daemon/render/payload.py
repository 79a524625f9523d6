"""What a report's page carries, as columns of numbers and text: all to count a selection from.

Ids of the run file become indices into columns, and text is made visible once, here. The page's
scripts decode it: names are as they use them (``run.js``), times are ms from the run's start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.memory import Growth
from profd.daemon.analyze.operators import issuing_lines
from profd.daemon.analyze.phases import PHASES, STARTUP, PhaseIndex
from profd.daemon.analyze.windows import about_window
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.render.buckets import Columns, take_buckets
from profd.daemon.render.operators import about_lines, issuer_of
from profd.daemon.render.plaintext import visible
from profd.daemon.render.seriespayload import gpu_entries, process_entries
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import FrameRow, StackRow, WindowRow


class NumberedFunctions:
    """Functions and their files, each once.

    Two frames are of one function if its name and ``path_of`` are the same.

    Files have their full path and ``module``, the path from the outermost package down.
    """

    def __init__(self, path_of: Callable[[FrameRow], str]) -> None:
        self.files: list[dict[str, str | bool]] = []
        self.names, self.file_of = list[str](), list[int]()
        self._path_of = path_of
        self._file_index: dict[str, int] = {}
        self._index: dict[tuple[str, str], int] = {}

    def of(self, frame: FrameRow) -> int:
        path = self._path_of(frame)
        key = (frame.function, path)
        if key not in self._index:
            if path not in self._file_index:
                self._file_index[path] = len(self.files)
                module = visible(frame.module_path)
                self.files.append(
                    {"path": visible(frame.file), "module": module, "library": frame.is_library}
                )
            self._index[key] = len(self.names)
            self.names.append(visible(frame.function))
            self.file_of.append(self._file_index[path])
        return self._index[key]

    def columns(self) -> dict[str, object]:
        return {"files": self.files, "functionName": self.names, "functionFile": self.file_of}


def take_payload(reader: RunReader, phases: PhaseIndex, memory: Iterable[Growth]) -> dict[str, Any]:
    """Take what the page shows; times are exact to a time bucket, counts are exact.

    Bucket 0 starts at ``startedMs`` (of the epoch), buckets are ``bucketMs`` long. ``knownToMs`` is
    when the newest recording ends. A GPU is idle while its utilization is below ``gpuIdleBelow``.
    Stacks are a prefix tree, callers first; ``stackUp`` is how far back the calling stack lies, 0
    at a root. ``parts`` names the conditions of the parts of a thread's buckets. ``memory`` is how
    the memory of the processes grows.
    """
    buckets = take_buckets(reader)
    stacks = _used_stacks(reader, buckets.threads.values())
    stack_index = {row.id: at for at, row in enumerate(stacks)}
    processes = {row.id: index for index, row in enumerate(reader.processes.values())}
    info, lives = reader.info, take_lives(reader)
    return {
        "startedMs": info.started_ns // MILLISECOND_NS,
        "durationMs": max(info.time.length_ns // MILLISECOND_NS, 1),
        "knownToMs": (lives.known_to_ns - info.started_ns) // MILLISECOND_NS,
        "bucketMs": buckets.width_ms,
        "phases": PHASES,
        "importPhase": [phase.name for phase in PHASES].index(STARTUP),
        **_stack_columns(reader, stacks, stack_index, phases),
        "threads": _threads(reader, buckets.threads, processes, stack_index),
        "processes": process_entries(reader, processes, lives, memory),
        "gpus": gpu_entries(reader),
        "gpuIdleBelow": RECORDING.idle_below,
        "parts": [" ".join(names) for names in buckets.parts],
        # Windows on a schedule are thousands.
        "windows": [_window(reader, row, processes) for row in reader.taken_windows()[-32:]],
        "events": [
            {
                "at_ms": (row.at_ns - info.started_ns) // MILLISECOND_NS,
                "kind": visible(row.kind),
                "process": processes.get(row.process or 0),
                "text": visible(row.text),
            }
            for row in reader.events()
        ],
    }


def _stack_columns(
    reader: RunReader,
    stacks: Sequence[StackRow],
    stack_index: Mapping[int, int],
    phases: PhaseIndex,
) -> dict[str, object]:
    functions = NumberedFunctions(lambda frame: frame.file)
    frames = list({row.frame: reader.frames[row.frame] for row in stacks}.values())
    frame_index = {frame.id: at for at, frame in enumerate(frames)}
    numbers = {phase.name: number for number, phase in enumerate(PHASES)}
    return {
        "frameFunction": [functions.of(frame) for frame in frames],
        "frameLine": [frame.line for frame in frames],
        "frameSource": [
            None if frame.source is None else visible(frame.source) for frame in frames
        ],
        **functions.columns(),
        "stackUp": [
            at - stack_index[row.parent] if row.parent else 0 for at, row in enumerate(stacks)
        ],
        "stackFrame": [frame_index[row.frame] for row in stacks],
        "stackPhase": [numbers[phases.of_stack(row.id)] for row in stacks],
    }


def _threads(
    reader: RunReader,
    columns_of: Mapping[int, Columns],
    processes: Mapping[int, int],
    stack_index: Mapping[int, int],
) -> list[dict[str, object]]:
    """Return threads, those of training processes first, by rank, main threads before others."""

    def order(thread: int) -> tuple[bool, int, int, bool, int]:
        row = reader.threads[thread]
        process = reader.processes[row.process]
        return (not process.is_main, process.rank or 0, process.id, not row.is_main, thread)

    entries: list[dict[str, object]] = []
    for thread in sorted(columns_of, key=order):
        row, columns = reader.threads[thread], columns_of[thread]
        entries.append(
            {
                "process": processes[row.process],
                "name": visible(row.name),
                "main": row.is_main,
                **columns,
                "stacks": [stack_index[stack] for stack in columns["stacks"]],
            }
        )
    return entries


def _used_stacks(reader: RunReader, threads: Iterable[Columns]) -> list[StackRow]:
    """Return the stacks that have samples and their callers, callers first."""
    used: set[int] = set()
    for thread in threads:
        for stack in set(thread["stacks"]):
            while stack and stack not in used:
                used.add(stack)
                stack = reader.stacks[stack].parent
    # A stack is written after the one that it was called from, so the order of ids is callers
    # first.
    return [reader.stacks[stack] for stack in sorted(used)]


def _window(reader: RunReader, row: WindowRow, processes: Mapping[int, int]) -> dict[str, object]:
    """Return a torch.profiler window.

    Its operators are columns by name, ``left_out`` of them are not carried. ``issuer`` is the
    user's line that issued an operator, empty if samples name none.
    """
    operators, issuers = reader.operators(row.id), issuing_lines(reader, row)
    kept = sorted(operators, key=lambda one: -(one.self_cpu_ns + one.self_cuda_ns))[:600]
    columns = {
        name: [getattr(one, name) for one in kept] for name in OperatorTotals.__struct_fields__
    }
    for name in ("name", "device", "input_shapes"):
        columns[name] = list(map(visible, columns[name]))
    columns["issuer"] = [issuer_of(one, issuers) for one in kept]
    start_ns, end_ns = row.time.moved(-reader.info.started_ns)
    return {
        "process": processes[row.process],
        "source": visible(row.source),
        "start_ms": start_ns // MILLISECOND_NS,
        "end_ms": -(-end_ns // MILLISECOND_NS),
        "steps": len(reader.window_steps(row.id)),
        "left_out": len(operators) - len(kept),
        "about": [visible(text) for text in about_lines(about_window(reader, row))],
        "operators": columns,
    }
