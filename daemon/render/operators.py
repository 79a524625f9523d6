"""The operators of a window as a table in the columns of ``key_averages().table()``, and as JSON.

Columns of a device, of memory and of shapes are there only if the window has anything to show in
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from profd.daemon.analyze.operators import IssuingLine, WindowSummary, issuing_lines
from profd.daemon.analyze.windows import HOST, AboutWindow, about_window
from profd.daemon.clock import MICROSECOND_NS
from profd.daemon.render.plaintext import (
    GAP,
    Paragraph,
    TextLine,
    aligned,
    cut,
    rows_of,
    visible,
    width,
)
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import OperatorTotals
from profd.daemon.store.rows import WindowRow
from profd.daemon.timerange import TimeRange
from profd.daemon.units import percent, plural, step_time

_NAME_CELLS = 55
_SPARE = (
    *("CPU time avg", "CUDA time avg", "CPU total %", "Self CUDA %"),
    *("CPU Mem", "CUDA Mem", "Self CPU %", "CUDA total", "CPU total"),
)
"""The columns that a table without enough room lacks, in this order."""


class Sums(NamedTuple):
    """The wholes of shares: the self times of all rows on the host, and of the work on devices."""

    self_cpu_ns: int
    self_cuda_ns: int


class OperatorColumn(NamedTuple):
    """A head, and the cell of a row.

    If ``shows`` is given, the column is only in tables with a row of which it returns true.
    """

    head: str
    cell: Callable[[OperatorTotals, Sums], str]
    shows: Callable[[OperatorTotals], object] | None = None


def sort_rows(rows: Sequence[OperatorTotals], field: str | None) -> list[OperatorTotals]:
    """Return the rows by a field, by default the usual one: the largest first, names from A."""
    order = attrgetter(field or usual_order(rows))
    return sorted(rows, key=order, reverse=field != "name")


def usual_order(rows: Sequence[OperatorTotals]) -> str:
    """Return the default field to order rows by: with a GPU, its time."""
    return "self_cuda_ns" if sums_of(rows).self_cuda_ns else "self_cpu_ns"


def operator_table(
    rows: Sequence[OperatorTotals],
    limit: int | None = None,
    issuers: Mapping[str, Sequence[IssuingLine]] | None = None,
    room: int = 300,
) -> str:
    """Return the first ``limit`` rows as a table, without a newline at the end.

    ``issuers`` are the lines that issued operators, by name. No cell is wider than a third
    of ``room``, and columns are left out, and named, if the table would be wider.
    """
    sums, columns = sums_of(rows), columns_of(rows)
    if issuers:
        columns.append(OperatorColumn("From (samples)", lambda row, _: issuer_of(row, issuers)))
    texts = {
        one.head: [cut(one.cell(row, sums), room // 3) for row in rows[:limit]] for one in columns
    }
    widths = {head: max(map(width, (head, *cells))) for head, cells in texts.items()}
    left_out: list[str] = []
    for head in filter(texts.__contains__, _SPARE):
        if sum(widths.values()) + len(GAP) * (len(widths) - 1) > room:
            del texts[head], widths[head]
            left_out.append(head)
    heads = [*texts]
    lines = [
        aligned(heads, zip(*texts.values(), strict=True), right=heads[1:], has_rule=True),
        f"Self CPU time total: {_time(sums.self_cpu_ns)}",
    ]
    if sums.self_cuda_ns:
        lines.append(f"Self CUDA time total: {_time(sums.self_cuda_ns)}")
    if left_out:
        lines.append(f"No room for {', '.join(left_out)}: in a pipe or file they are there")
    return "\n".join(lines)


def operator_lines(windows: Sequence[WindowSummary]) -> Iterator[TextLine]:
    """Yield what took most in each process of the last window, if one was taken."""
    heads = ("self CUDA", "self CPU", "calls", "operator", "")
    for window in windows:
        rank = "" if window.rank is None else f"rank {window.rank}, "
        length = step_time(TimeRange(window.start_ns, window.end_ns).length_s)
        yield f"  {rank}{plural(window.steps, 'whole step')} in {length}"
        for text in about_lines(window):
            yield Paragraph(text, "  ")
        on_gpu = any(row.self_cuda_share is not None for row in window.operators)
        rows = []
        for row in window.operators[:6]:
            cuda = percent(row.self_cuda_share or 0.0) if on_gpu else ""
            place = row.line.label if row.line else ""
            shares = cuda, percent(row.self_cpu_share)
            rows.append((*shares, f"{row.calls:,}", cut(row.name, 34), place))
        yield from rows_of(aligned(heads, rows, right=heads[:3]))


def about_lines(about: AboutWindow) -> Iterator[str]:
    """Yield what a window says beside its operators: what GPUs waited for, and its cost."""
    times = about.step_times
    measured = (
        (times.before_s, "before the window"),
        (times.within_s, "in it"),
        (times.after_s, "after it"),
    )
    known = [f"{step_time(seconds)} {when}" for seconds, when in measured if seconds is not None]
    if len(known) > 1:
        yield f"A step took {', '.join(known)}."
    for gpu in about.gpus:
        idle, host, rest = (
            gpu.share(ns) for ns in (gpu.idle_ns, gpu.host_ns, gpu.idle_ns - gpu.host_ns)
        )
        lines = [f"{one.samples} in {one.label} {one.function}" for one in gpu.lines[:3]]
        during = f" (of {plural(gpu.samples, 'sample')} {', '.join(lines)})" if lines else ""
        yield (
            f"GPU {gpu.gpu} was idle {percent(idle)} from its first work to its last: "
            f"{percent(host)} as nothing was "
            f"launched{during}, {percent(rest)} by dependencies and latency."
        )
    yield from about.notes


def issuer_of(row: OperatorTotals, issuers: Mapping[str, Sequence[IssuingLine]]) -> str:
    """Return the line that most samples of an operator name, with their number, or empty."""
    lines = issuers.get(row.name) if row.device == HOST else None
    return f"{visible(lines[0].label)} ({lines[0].samples})" if lines else ""


def sums_of(rows: Iterable[OperatorTotals]) -> Sums:
    """Return the wholes of the shares in a table of these rows."""
    host_ns = device_ns = 0
    for row in rows:
        host_ns += row.self_cpu_ns
        device_ns += row.self_cuda_ns if row.device != HOST and not row.is_annotation else 0
    return Sums(host_ns, device_ns)


def columns_of(rows: Sequence[OperatorTotals]) -> list[OperatorColumn]:
    """Return the columns in which these rows have anything to show, the name first."""
    return [one for one in _COLUMNS if one.shows is None or any(map(one.shows, rows))]


def _time(time_ns: float) -> str:
    if time_ns >= 1e9:
        return f"{time_ns / 1e9:.3f}s"
    return f"{time_ns / 1e6:.3f}ms" if time_ns >= 1e6 else f"{time_ns / 1e3:.3f}us"


def _share(time_ns: int, total_ns: int) -> str:
    return f"{time_ns * 100 / total_ns:.2f}%" if total_ns else ""


def _bytes(size: int) -> str:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(size) >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size} B"


def _name(row: OperatorTotals) -> str:
    name = visible(row.name)
    return name if len(name) < _NAME_CELLS - 3 else f"{name[: _NAME_CELLS - 3]}..."


def _device(row: OperatorTotals) -> object:
    return row.self_cuda_ns


def _memory(row: OperatorTotals) -> object:
    return row.cpu_bytes or row.self_cpu_bytes


def _device_memory(row: OperatorTotals) -> object:
    return row.cuda_bytes or row.self_cuda_bytes


_COLUMNS = (
    OperatorColumn("Name", lambda row, _: _name(row)),
    OperatorColumn("Self CPU %", lambda row, sums: _share(row.self_cpu_ns, sums.self_cpu_ns)),
    OperatorColumn("Self CPU", lambda row, _: _time(row.self_cpu_ns)),
    OperatorColumn("CPU total %", lambda row, sums: _share(row.cpu_total_ns, sums.self_cpu_ns)),
    OperatorColumn("CPU total", lambda row, _: _time(row.cpu_total_ns)),
    OperatorColumn("CPU time avg", lambda row, _: _time(row.cpu_total_ns / row.calls)),
    OperatorColumn("Self CUDA", lambda row, _: _time(row.self_cuda_ns), _device),
    OperatorColumn(
        "Self CUDA %", lambda row, sums: _share(row.self_cuda_ns, sums.self_cuda_ns), _device
    ),
    OperatorColumn("CUDA total", lambda row, _: _time(row.cuda_total_ns), _device),
    OperatorColumn("CUDA time avg", lambda row, _: _time(row.cuda_total_ns / row.calls), _device),
    OperatorColumn("CPU Mem", lambda row, _: _bytes(row.cpu_bytes), _memory),
    OperatorColumn("Self CPU Mem", lambda row, _: _bytes(row.self_cpu_bytes), _memory),
    OperatorColumn("CUDA Mem", lambda row, _: _bytes(row.cuda_bytes), _device_memory),
    OperatorColumn("Self CUDA Mem", lambda row, _: _bytes(row.self_cuda_bytes), _device_memory),
    OperatorColumn("# of Calls", lambda row, _: str(row.calls)),
    OperatorColumn(
        "Input Shapes",
        lambda row, _: visible(row.input_shapes)[:80],
        lambda row: row.input_shapes not in ("", "[]"),
    ),
)


def describe(reader: RunReader, window: WindowRow, field: str | None) -> dict[str, Any]:
    """Return a window as its JSON has it, with operators as ``sort_rows`` sorts them.

    Operators are kept apart by input shape. ``steps`` counts the whole steps in the window,
    ``lines`` are those that issued the operators of a name, by the samples. Raises RunUnreadable.
    """
    process, issuers = reader.processes[window.process], issuing_lines(reader, window)
    operators = []
    for row in sort_rows(reader.operators(window.id), field):
        fields: dict[str, Any] = {}
        for name, value in msgspec.structs.asdict(row).items():
            if name.endswith("_ns"):
                fields[f"{name.removesuffix('_ns')}_us"] = value / MICROSECOND_NS
            elif name != "is_annotation":
                fields[name] = value
        fields["lines"] = issuers.get(row.name, ()) if row.device == HOST else ()
        operators.append(fields)
    return {
        "source": window.source,
        "pid": process.pid,
        "rank": process.rank,
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "steps": len(reader.window_steps(window.id)),
        "device_busy_ns": window.device_busy_ns,
        "device_idle_ns": window.device_idle_ns,
        "device_overlap_ns": window.device_overlap_ns,
        **msgspec.structs.asdict(about_window(reader, window)),
        "operators": operators,
    }
