"""Sums a trace by operator and input shape, to the numbers of torch's own ``key_averages()``.

Times are integer nanoseconds, so sums are exact. Rows are by shape; the table by name alone is their sum.

A span that lies within another one on the same thread was called by it. A call whose only call is one of the same name
counts once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from profd.daemon.windows.flops import NO_SHAPES, InputTable
from profd.daemon.windows.trace import (
    ANNOTATIONS,
    FRONTEND,
    MARKED_STEP,
    MEMORY,
    PYTHON_FUNCTION,
    HostSpan,
    MemoryChange,
    Spans,
    Thread,
)


def nest(spans: Spans) -> list[HostSpan]:
    """Return the host's spans in order of time, each with its parent, children and kernels.

    Without those that were folded into a parent of the same name.
    """
    launched: defaultdict[int, int] = defaultdict(int)
    for work in spans.device:
        launched[work.linked] += work.end_ns - work.start_ns
    for span in spans.host:
        if span.id and span.category in FRONTEND:
            span.kernels_ns = launched.get(span.id, 0)
    ordered = sorted(spans.host, key=lambda span: (span.start_ns, -span.end_ns))
    _find_parents(ordered)
    calls = _fold_namesakes(ordered)
    for span in reversed(calls):  # children come after their parents
        span.device_ns = span.kernels_ns + sum(child.device_ns for child in span.children)
    return calls


def _find_parents(ordered: Iterable[HostSpan]) -> None:
    """Give each span the innermost one on its thread that it lies within; one that overlaps another has none."""
    open_spans: defaultdict[Thread, list[HostSpan]] = defaultdict(list)
    for span in ordered:
        stack = open_spans[span.thread]
        while stack and (span.start_ns >= stack[-1].end_ns or span.end_ns > stack[-1].end_ns):
            stack.pop()
        if stack:
            span.parent = stack[-1]
            stack[-1].children.append(span)
        stack.append(span)


def _fold_namesakes(ordered: Iterable[HostSpan]) -> list[HostSpan]:
    kept = []
    for span in ordered:
        parent = span.parent
        if parent is None or parent.name != span.name or len(parent.children) != 1:
            kept.append(span)
            continue
        parent.children = span.children
        parent.kernels_ns = span.kernels_ns
        for child in span.children:
            child.parent = parent
    return kept


class Memory(NamedTuple):
    """Bytes allocated minus bytes freed."""

    host_bytes: int
    device_bytes: int


class MemoryLedger:
    """All changes of memory in a trace, in order of time."""

    def __init__(self, changes: Sequence[MemoryChange]) -> None:
        self._changes = changes
        self._times = [change.at_ns for change in changes]
        self._host = [0, *accumulate(change.host_bytes for change in changes)]
        self._device = [0, *accumulate(change.device_bytes for change in changes)]

    def __bool__(self) -> bool:
        return bool(self._times)

    def within(self, span: HostSpan) -> Memory:
        """Return what changed from the start of a span to its end, both included."""
        first, after = self._range(span)
        return Memory(self._host[after] - self._host[first], self._device[after] - self._device[first])

    def outside(self, spans: Iterable[HostSpan]) -> list[MemoryChange]:
        """Return the changes that happened in none of the spans."""
        if not self._times:
            return []
        edges = [0] * (len(self._times) + 1)
        for span in spans:
            first, after = self._range(span)
            edges[first] += 1
            edges[after] -= 1
        return [change for change, covers in zip(self._changes, accumulate(edges), strict=False) if not covers]

    def _range(self, span: HostSpan) -> tuple[int, int]:
        return bisect_left(self._times, span.start_ns), bisect_right(self._times, span.end_ns)


HOST, DEVICE = "cpu", "cuda"


class OperatorKey(msgspec.Struct, frozen=True):
    """The key of a row: calls of an operator with inputs of one shape, or of a kernel of one name.

    ``device`` is where it ran: ``cpu`` or ``cuda``. ``input_shapes`` is text as torch prints it, ``[]`` where shapes
    were not recorded.
    """

    name: str
    device: str
    is_annotation: bool
    input_shapes: str = NO_SHAPES


class Totals(msgspec.Struct):
    """Sums over calls. Self excludes what a call called; bytes are those allocated minus those freed meanwhile.

    ``flops`` is 0 where there is no estimate.
    """

    calls: int = 0
    self_cpu_ns: int = 0
    cpu_total_ns: int = 0
    self_cuda_ns: int = 0
    cuda_total_ns: int = 0
    self_cpu_bytes: int = 0
    cpu_bytes: int = 0
    self_cuda_bytes: int = 0
    cuda_bytes: int = 0
    flops: int = 0


Operators = dict[OperatorKey, Totals]


def sum_up(spans: Spans) -> Operators:
    """Return the totals of every operator, range and kernel."""
    operators: defaultdict[OperatorKey, Totals] = defaultdict(Totals)
    ledger = MemoryLedger(spans.memory)
    for change in ledger.outside(spans.host):
        totals = operators[OperatorKey(MEMORY, HOST, False)]
        totals.calls += 1
        totals.cpu_bytes += change.host_bytes
        totals.self_cpu_bytes += change.host_bytes
        totals.cuda_bytes += change.device_bytes
        totals.self_cuda_bytes += change.device_bytes
    table = InputTable()
    for span in nest(spans):
        if span.category != PYTHON_FUNCTION:
            inputs = table.inputs_of(span)
            key = OperatorKey(_row_name(span.name), HOST, span.category in ANNOTATIONS, inputs.shapes)
            _add_host(operators[key], span, ledger, inputs.flops)
    for work in spans.device:
        totals = operators[OperatorKey(_row_name(work.name), DEVICE, work.category in ANNOTATIONS)]
        totals.calls += 1
        totals.self_cuda_ns += work.end_ns - work.start_ns
        totals.cuda_total_ns += work.end_ns - work.start_ns
    return dict(operators)


def _row_name(name: str) -> str:
    return "ProfilerStep*" if name.startswith(MARKED_STEP) else name


def _add_host(totals: Totals, span: HostSpan, ledger: MemoryLedger, flops: int) -> None:
    totals.calls += 1
    totals.cpu_total_ns += span.duration_ns
    totals.self_cpu_ns += span.duration_ns - sum(child.duration_ns for child in span.children)
    totals.cuda_total_ns += span.device_ns
    totals.self_cuda_ns += span.kernels_ns
    totals.flops += flops
    if ledger:
        memory, of_children = ledger.within(span), [ledger.within(child) for child in span.children]
        totals.cpu_bytes += memory.host_bytes
        totals.self_cpu_bytes += memory.host_bytes - sum(child.host_bytes for child in of_children)
        totals.cuda_bytes += memory.device_bytes
        totals.self_cuda_bytes += memory.device_bytes - sum(child.device_bytes for child in of_children)
