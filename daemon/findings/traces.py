"""Findings by the kernels and waits of the last torch.profiler window."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from profd.daemon.analyze.torchtraces import last_windows
from profd.daemon.analyze.windows import HOST, python_threads, seen_in
from profd.daemon.findings.context import FindingContext, line_of
from profd.daemon.findings.finding import Finding
from profd.daemon.findings.shares import Share
from profd.daemon.findings.texts import table
from profd.daemon.store.records import COLLECTIVE


def of_kernels(
    name: str, context: FindingContext, *, cases: Mapping[str, bool] = {}
) -> Finding | None:
    """Return the finding ``name`` by its kind of kernel in the last window of its processes.

    The kernels of a few steps stand for those of the training, but the pauses of the GPU between
    them do not: the window itself slows the main thread down. So the share of a kind of kernel is
    its part of all kernels' time, times the share for which the GPUs are busy in the training.
    """
    rows = [
        one
        for window in last_windows(context.reader, context.selection)
        for one in context.reader.operators(window.id)
        if one.device != HOST and not one.is_annotation
    ]
    whole_ns, busy = sum(row.self_cuda_ns for row in rows), context.utilization
    busy = 1.0 if busy is None else busy
    kind = re.compile(table().finding[name].kernels)
    found = [row for row in rows if kind.search(row.name)]
    value = busy * sum(row.self_cuda_ns for row in found) / whole_ns if whole_ns else 0.0
    return context.finding(name, Share(value, value, value), cases=cases)


def of_waits(name: str, context: FindingContext) -> Finding | None:
    """Return the finding ``name`` by its kind of wait in the last window of its processes."""
    reader = context.reader
    last = last_windows(reader, context.selection)
    kind, seen, wait_ns = re.compile(table().finding[name].kernels), Counter[int](), 0
    for row in last:
        # Helper threads of Python wait without delaying anyone. The main thread waits for those of
        # autograd.
        named, main = python_threads(reader, row.process)
        waits = [one for one in reader.window_waits(row.id) if kind.match(one.name)]
        waits = [one for one in waits if named.get(one.os_tid, main) == main]
        wait_ns += sum(one.end_ns - one.start_ns for one in waits)
        for one, stack in seen_in(reader, row, waits):
            frame = context.phases.user_line(stack) if one.name != COLLECTIVE else None
            seen.update([frame.id] if frame else [])
    value = min(wait_ns / (sum(row.end_ns - row.start_ns for row in last) or 1), 1.0)
    share, most = Share(value, value, value), max(seen, key=seen.__getitem__, default=None)
    return context.finding(
        name, share, line=lambda: None if most is None else line_of(reader.frames[most])
    )
