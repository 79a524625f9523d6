"""The torch.profiler windows of a run as its page carries them: as many operators as anybody reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from profd.daemon.analyze.issuers import IssuingLine, issuing_lines
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.render.entries import OperatorColumns, WindowEntry
from profd.daemon.render.operatortable import issuer_of
from profd.daemon.render.visible import visible
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import OperatorRow, WindowRow
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


def _columns(operators: Sequence[OperatorRow], issuers: Mapping[str, Sequence[IssuingLine]]) -> OperatorColumns:
    columns = {name: [getattr(one, name) for one in operators] for name in OperatorRow.__struct_fields__}
    for name in ("name", "device", "input_shapes"):
        columns[name] = [visible(text) for text in columns[name]]
    columns["issuer"] = [issuer_of(one, issuers) for one in operators]
    return msgspec.convert(columns, OperatorColumns)
