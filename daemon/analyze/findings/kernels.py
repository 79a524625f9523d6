"""The kernels that ran on the GPUs in the last window of a training: what part of the steps each kind of them takes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from profd.daemon.analyze.findings.case import Case, Share
from profd.daemon.analyze.findings.devices import utilization
from profd.daemon.analyze.operators import HOST
from profd.daemon.store.rows import OperatorRow, WindowRow


class Kernels(msgspec.Struct, frozen=True):
    """All kernels of a window, over its processes; ``busy`` is the utilization of the GPUs, 0 to 1.

    The kernels of a few steps stand for those of the training, but not how long the GPU pauses between them: the window
    itself slows the main thread down. So what a kind of kernel has of the time is its part of all kernels' time, as far
    as the GPUs are busy in the training.
    """

    rows: Sequence[OperatorRow]
    busy: float

    def share(self, kind: re.Pattern[str], *, but: re.Pattern[str] | None = None) -> Share:
        """Return the share of the training's time in which kernels of one kind run; its samples are calls."""
        whole_ns = sum(row.self_cuda_ns for row in self.rows)
        found = [row for row in self.rows if kind.search(row.name) and not (but and but.search(row.name))]
        value = self.busy * sum(row.self_cuda_ns for row in found) / whole_ns if whole_ns else 0.0
        return Share(value, value, value, sum(row.calls for row in found))


def take_kernels(case: Case) -> Kernels | None:
    """Return the kernels of the last window in the time looked at; None without one, or without kernels in it."""
    taken = [row for row in case.reader.windows() if not row.error and _is_of(case, row)]
    rows = [
        operator
        for row in taken
        if row.asked_ns == taken[-1].asked_ns
        for operator in case.reader.operators(row.id)
        if operator.device != HOST and not operator.is_annotation
    ]
    busy = utilization(case) if rows else None
    return Kernels(rows, 1.0 if busy is None else busy) if rows else None


def _is_of(case: Case, row: WindowRow) -> bool:
    is_selected = case.selection.takes_process(case.reader.processes[row.process])
    return is_selected and row.start_ns < case.to_ns and row.end_ns > case.from_ns
