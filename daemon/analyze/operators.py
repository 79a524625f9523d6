"""The operators of the last torch.profiler window: those that take most, with the lines that issued them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from profd.daemon.analyze.issuers import IssuingLine, issuing_lines
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import OperatorRow, WindowRow

HOST = "cpu"
"""The device of operators that run on the host; a kernel has that of its GPU."""
OPERATORS = 10
LARGEST_TRACE_BYTES = 16 << 20
"""Lines come from the trace: one above it would keep a summary waiting for seconds."""


class OperatorSummary(msgspec.Struct, frozen=True):
    """All calls of an operator on the host in a window.

    Shares, 0 to 1, are of the self times of all operators; ``self_cuda_share`` is None where nothing ran on a GPU.
    ``line`` issued it, by most of its samples.
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


class WindowSummary(msgspec.Struct, frozen=True):
    """A window of one process, with the operators that take most: of the GPU where one is used, of the CPU else."""

    pid: int
    rank: int | None
    source: str
    start_ns: int
    end_ns: int
    steps: int
    operators: tuple[OperatorSummary, ...]


def last_window(reader: RunReader, selection: Selection) -> tuple[WindowSummary, ...]:
    """Return the last window that was taken in a selection's range of time, of each of its processes by rank."""
    taken = [row for row in reader.windows() if not row.error and _is_selected(reader, row, selection)]
    last = [row for row in taken if row.asked_ns == taken[-1].asked_ns]
    found = [_summarize(reader, row) for row in last]
    return tuple(sorted(found, key=lambda one: (one.rank is None, one.rank or 0, one.pid)))


def by_name(rows: Iterable[OperatorRow]) -> list[OperatorRow]:
    """Return the operators of a window without regard to shapes."""
    groups: defaultdict[tuple[str, str, bool], list[OperatorRow]] = defaultdict(list)
    for row in rows:
        groups[row.name, row.device, row.is_annotation].append(row)
    return [_merge(group) for group in groups.values()]


def _merge(rows: Sequence[OperatorRow]) -> OperatorRow:
    sums = {field: sum(getattr(row, field) for row in rows) for field in OperatorRow.__struct_fields__[4:]}
    return msgspec.structs.replace(rows[0], input_shapes="", **sums)


def _is_selected(reader: RunReader, row: WindowRow, selection: Selection) -> bool:
    begins_late = selection.to_ns is not None and row.start_ns >= selection.to_ns
    ends_early = selection.from_ns is not None and row.end_ns <= selection.from_ns
    return selection.takes_process(reader.processes[row.process]) and not begins_late and not ends_early


def _summarize(reader: RunReader, window: WindowRow) -> WindowSummary:
    process = reader.processes[window.process]
    lines = issuing_lines(reader, window) if window.trace_bytes <= LARGEST_TRACE_BYTES else {}
    # As in torch's table: kernels are counted for the operators that start them.
    rows = [row for row in by_name(reader.operators(window.id)) if row.device == HOST]
    own = [row for row in rows if not row.is_annotation]
    cpu_ns, cuda_ns = sum(row.self_cpu_ns for row in rows), sum(row.self_cuda_ns for row in own)
    own.sort(key=lambda row: (row.self_cuda_ns, row.self_cpu_ns) if cuda_ns else (row.self_cpu_ns, 0), reverse=True)
    return WindowSummary(
        pid=process.pid,
        rank=process.rank,
        source=window.source,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        steps=len(reader.window_steps(window.id)),
        operators=tuple(
            OperatorSummary(
                name=row.name,
                calls=row.calls,
                self_cpu_ns=row.self_cpu_ns,
                self_cpu_share=row.self_cpu_ns / cpu_ns if cpu_ns else 0.0,
                cpu_total_ns=row.cpu_total_ns,
                self_cuda_ns=row.self_cuda_ns,
                self_cuda_share=row.self_cuda_ns / cuda_ns if cuda_ns else None,
                cuda_total_ns=row.cuda_total_ns,
                line=next(iter(lines.get(row.name, ())), None),
            )
            for row in own[:OPERATORS]
        ),
    )
