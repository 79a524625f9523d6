"""Sums a trace by operator and input shape, as torch's own ``key_averages()`` does.

Times are integer nanoseconds, so sums are exact. Rows are by shape; the table by name alone is
their sum.

A span that lies within another one on the same thread was called by it. A call whose only call is
one of the same name counts once.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from profd.daemon.windows import trace
from profd.daemon.windows.trace import HostSpan, MemoryChange, Spans, Thread


def nest(spans: Spans) -> list[HostSpan]:
    """Return the host's spans in order of time, nested.

    Leave out those that are folded into a parent of the same name.
    """
    launched: defaultdict[int, int] = defaultdict(int)
    for work in spans.device:
        launched[work.linked] += work.end_ns - work.start_ns
    for span in spans.host:
        if span.id and span.category in trace.FRONTEND:
            span.kernels_ns = launched.get(span.id, 0)
    ordered = sorted(spans.host, key=lambda span: (span.start_ns, -span.end_ns))
    _find_parents(ordered)
    calls = _folded(ordered)
    for span in reversed(calls):  # children come after their parents
        span.device_ns = span.kernels_ns + sum(child.device_ns for child in span.children)
    return calls


def _find_parents(ordered: Iterable[HostSpan]) -> None:
    """Give each span its parent: the innermost one on its thread around all of it, if any."""
    open_spans: defaultdict[Thread, list[HostSpan]] = defaultdict(list)
    for span in ordered:
        stack = open_spans[span.thread]
        while stack and (span.start_ns >= stack[-1].end_ns or span.end_ns > stack[-1].end_ns):
            stack.pop()
        if stack:
            span.parent = stack[-1]
            stack[-1].children.append(span)
        stack.append(span)


def _folded(ordered: Iterable[HostSpan]) -> list[HostSpan]:
    """Return spans less those folded into a parent: its only children, of the same name."""
    calls = []
    for span in ordered:
        parent = span.parent
        if parent is None or parent.name != span.name or len(parent.children) != 1:
            calls.append(span)
            continue
        parent.children = span.children
        parent.kernels_ns = span.kernels_ns
        for child in span.children:
            child.parent = parent
    return calls


class MemoryLedger:
    """All changes of memory in a trace, in order of time: bytes allocated minus bytes freed."""

    def __init__(self, changes: Sequence[MemoryChange]) -> None:
        self._changes = changes
        self._times = [change.at_ns for change in changes]
        self._host = [0, *accumulate(change.host_bytes for change in changes)]
        self._device = [0, *accumulate(change.device_bytes for change in changes)]

    def within(self, span: HostSpan) -> tuple[int, int]:
        """Return the bytes on host and device from a span's start to its end, both included."""
        first, after = self._range(span)
        return self._host[after] - self._host[first], self._device[after] - self._device[first]

    def outside(self, spans: Iterable[HostSpan]) -> list[MemoryChange]:
        """Return the changes that happened in none of the spans."""
        edges = [0] * (len(self._times) + 1)
        for span in spans:
            first, after = self._range(span)
            edges[first] += 1
            edges[after] -= 1
        return [
            change
            for change, covers in zip(self._changes, accumulate(edges), strict=False)
            if not covers
        ]

    def _range(self, span: HostSpan) -> tuple[int, int]:
        return bisect_left(self._times, span.start_ns), bisect_right(self._times, span.end_ns)


NO_SHAPES = "[]"


def shapes_of(span: HostSpan) -> str:
    """Return the shapes of a call's inputs, as torch prints them; none if not recorded."""
    dims = b"" if span.event is None else bytes(span.event.args.input_dims)
    return _printed(dims) if dims else NO_SHAPES


@functools.lru_cache(1 << 12)  # few shapes have many calls
def _printed(dims: bytes) -> str:
    # torch's tables show no shape of a list of tensors.
    plain = [
        [] if isinstance(one, list) and one and isinstance(one[0], list) else one
        for one in _decode_list(dims)
    ]
    return str(plain)


def _decode_list(text: bytes) -> list[object]:
    try:
        return msgspec.json.decode(text, type=list[object])
    except msgspec.DecodeError:  # of another version of torch, which writes something else here
        return []


HOST, DEVICE = "cpu", "cuda"


class OperatorKey(msgspec.Struct, frozen=True):
    """The key of a row: an operator and its ``input_shapes``, as torch prints them, or a kernel."""

    name: str
    device: str
    is_annotation: bool
    input_shapes: str = NO_SHAPES


class Totals(msgspec.Struct):
    """Sums over calls.

    Self excludes a call's own calls; bytes are those allocated minus those freed meanwhile.
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
    """Older profd estimated them."""

    def hold(
        self, host_bytes: int, device_bytes: int, of_children: Iterable[tuple[int, int]]
    ) -> None:
        """Add the bytes of a call, of which its own calls have a part."""
        self.cpu_bytes += host_bytes
        self.cuda_bytes += device_bytes
        for of_host, of_device in of_children:
            host_bytes -= of_host
            device_bytes -= of_device
        self.self_cpu_bytes += host_bytes
        self.self_cuda_bytes += device_bytes


Operators = dict[OperatorKey, Totals]


def sum_up(spans: Spans) -> Operators:
    """Return the totals of every operator, range and kernel."""
    operators: defaultdict[OperatorKey, Totals] = defaultdict(Totals)
    ledger = MemoryLedger(spans.memory)
    for change in ledger.outside(spans.host):
        totals = operators[OperatorKey(trace.MEMORY, HOST, False)]
        totals.calls += 1
        totals.hold(change.host_bytes, change.device_bytes, ())
    for span in nest(spans):
        if span.category != trace.PYTHON_FUNCTION:
            shapes, is_note = shapes_of(span), span.category in trace.ANNOTATIONS
            totals = operators[OperatorKey(_row_name(span.name), HOST, is_note, shapes)]
            totals.calls += 1
            totals.cpu_total_ns += span.duration_ns
            totals.self_cpu_ns += span.duration_ns - sum(
                child.duration_ns for child in span.children
            )
            totals.cuda_total_ns += span.device_ns
            totals.self_cuda_ns += span.kernels_ns
            if spans.memory:
                totals.hold(*ledger.within(span), map(ledger.within, span.children))
    for work in spans.device:
        totals = operators[
            OperatorKey(_row_name(work.name), DEVICE, work.category in trace.ANNOTATIONS)
        ]
        totals.calls += 1
        totals.self_cuda_ns += work.end_ns - work.start_ns
        totals.cuda_total_ns += work.end_ns - work.start_ns
    return dict(operators)


def _row_name(name: str) -> str:
    return "ProfilerStep*" if name.startswith(trace.MARKED_STEP) else name
