"""Sums a trace up by operator and input shape, to the numbers of torch's own ``key_averages()``.

Times are integer nanoseconds, so sums are exact. Rows are by shape; the table by name alone is their sum.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from profd.daemon.windows.memory import MemoryLedger
from profd.daemon.windows.nesting import nest
from profd.daemon.windows.shapes import NO_SHAPES, InputTable
from profd.daemon.windows.spans import ANNOTATIONS, MEMORY, PYTHON_FUNCTION, DeviceSpan, HostSpan, MemoryChange, Spans

HOST, DEVICE = "cpu", "cuda"
_STEP = "ProfilerStep#"
_ANY_STEP = "ProfilerStep*"


class OperatorKey(msgspec.Struct, frozen=True):
    """What is summed up in one row: calls of an operator with inputs of one shape, or of a kernel of one name.

    ``device`` is where it ran: ``cpu`` or ``cuda``. ``input_shapes`` is text as torch prints it, ``[]`` where shapes
    were not recorded.
    """

    name: str
    device: str
    is_annotation: bool
    input_shapes: str = NO_SHAPES


class Totals(msgspec.Struct):
    """Sums over calls. Self is without what a call called; bytes are those taken less those given back meanwhile.

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

    def add(self, other: Totals) -> None:
        """Add the sums of other calls to these."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


Operators = dict[OperatorKey, Totals]


def sum_up(spans: Spans) -> Operators:
    """Return the totals of every operator, range and kernel."""
    operators: defaultdict[OperatorKey, Totals] = defaultdict(Totals)
    ledger = MemoryLedger(spans.memory)
    for change in ledger.outside(spans.host):
        _add_memory(operators[OperatorKey(MEMORY, HOST, False)], change)
    table = InputTable()
    for span in nest(spans):
        if span.category != PYTHON_FUNCTION:
            inputs = table.inputs_of(span)
            key = OperatorKey(_row_name(span.name), HOST, span.category in ANNOTATIONS, inputs.shapes)
            _add_host(operators[key], span, ledger, inputs.flops)
    for work in spans.device:
        key = OperatorKey(_row_name(work.name), DEVICE, work.category in ANNOTATIONS)
        _add_device(operators[key], work)
    return dict(operators)


def by_name(operators: Operators) -> Operators:
    """Return the totals without regard to shapes, as ``key_averages()`` has them."""
    merged: defaultdict[OperatorKey, Totals] = defaultdict(Totals)
    for key, totals in operators.items():
        merged[msgspec.structs.replace(key, input_shapes="")].add(totals)
    return dict(merged)


def _row_name(name: str) -> str:
    return _ANY_STEP if name.startswith(_STEP) else name


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


def _add_device(totals: Totals, work: DeviceSpan) -> None:
    totals.calls += 1
    totals.self_cuda_ns += work.end_ns - work.start_ns
    totals.cuda_total_ns += work.end_ns - work.start_ns


def _add_memory(totals: Totals, change: MemoryChange) -> None:
    totals.calls += 1
    totals.cpu_bytes += change.host_bytes
    totals.self_cpu_bytes += change.host_bytes
    totals.cuda_bytes += change.device_bytes
    totals.self_cuda_bytes += change.device_bytes
