"""A window as `profd window --json` prints it: its fields are a promise, whatever the rows of the run file become."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.issuers import IssuingLine, issuing_lines
from profd.daemon.analyze.operators import HOST
from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.render.operatortable import sort_rows
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import OperatorRow, WindowRow


class Operator(msgspec.Struct, frozen=True):
    """An operator in the JSON of a window; ``lines`` issued those of its name, by the samples."""

    name: str
    device: str
    calls: int
    self_cpu_us: float
    cpu_total_us: float
    self_cuda_us: float
    cuda_total_us: float
    self_cpu_bytes: int
    cpu_bytes: int
    self_cuda_bytes: int
    cuda_bytes: int
    flops: int
    input_shapes: str
    lines: tuple[IssuingLine, ...]


class Window(msgspec.Struct, frozen=True):
    """A window in JSON; ``steps`` counts the whole steps in it, ``operators`` are told apart by input shape."""

    source: str
    pid: int
    rank: int | None
    start_ns: int
    end_ns: int
    steps: int
    device_busy_ns: int | None
    device_idle_ns: int | None
    device_overlap_ns: int | None
    operators: list[Operator]


def describe(reader: RunReader, window: WindowRow, field: str) -> Window:
    """Return a window with its operators sorted by a field of their rows; raises RunUnreadable."""
    process, lines = reader.processes[window.process], issuing_lines(reader, window)
    return Window(
        source=window.source,
        pid=process.pid,
        rank=process.rank,
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        steps=len(reader.window_steps(window.id)),
        device_busy_ns=window.device_busy_ns,
        device_idle_ns=window.device_idle_ns,
        device_overlap_ns=window.device_overlap_ns,
        operators=[
            _operator(row, lines.get(row.name, ()) if row.device == HOST else ())
            for row in sort_rows(reader.operators(window.id), field)
        ],
    )


def _operator(row: OperatorRow, lines: tuple[IssuingLine, ...]) -> Operator:
    return Operator(
        name=row.name,
        device=row.device,
        calls=row.calls,
        self_cpu_us=row.self_cpu_ns / MICROSECOND_NS,
        cpu_total_us=row.cpu_total_ns / MICROSECOND_NS,
        self_cuda_us=row.self_cuda_ns / MICROSECOND_NS,
        cuda_total_us=row.cuda_total_ns / MICROSECOND_NS,
        self_cpu_bytes=row.self_cpu_bytes,
        cpu_bytes=row.cpu_bytes,
        self_cuda_bytes=row.self_cuda_bytes,
        cuda_bytes=row.cuda_bytes,
        flops=row.flops,
        input_shapes=row.input_shapes,
        lines=lines,
    )
