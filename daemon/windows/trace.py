"""Reads a trace of torch.profiler or Kineto: events, spans on host and device, ends of steps.

Fields whose type differs between versions of torch are kept as raw JSON until they are needed.

Times become integer nanoseconds since the epoch. The categories of events are those of Kineto's
ActivityType. An event that ends on another thread looks in a trace like any other: it counts for
the thread that started it.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, BinaryIO, NamedTuple

import msgspec

from profd.daemon.errors import ProfdError
from profd.daemon.frameworks.kineto import LIMIT_BYTES, parse, time_ns
from profd.daemon.store.records import WindowStep
from profd.daemon.timerange import EVER

_GZIP_MAGIC = b"\x1f\x8b"
_NOTHING = msgspec.Raw(b"")
# A later time is an error, and sums with it would not fit into a run file.
Microseconds = Annotated[float, msgspec.Meta(ge=-EVER.to_ns / 1000, le=EVER.to_ns / 1000)]
"""Up to torch 2.3 they count from the epoch, and the trace has no base."""


class TraceUnreadable(ProfdError):
    """A file is no trace of torch.profiler, or a damaged one."""


class Details(msgspec.Struct, frozen=True, gc=False):
    """The other fields of an event as raw JSON, empty if Kineto wrote none."""

    external_id: msgspec.Raw = msgspec.field(name="External id", default=_NOTHING)
    correlation: msgspec.Raw = _NOTHING
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    bytes: msgspec.Raw = msgspec.field(name="Bytes", default=_NOTHING)
    device_type: msgspec.Raw = msgspec.field(name="Device Type", default=_NOTHING)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event.

    ``ts`` and ``dur`` are microseconds, with nanoseconds as decimals, ``ts`` counted from the base.
    """

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Microseconds = 0.0
    dur: Microseconds = 0.0
    args: Details = Details()


class Trace(msgspec.Struct, frozen=True):
    """The file of a trace; ``base_ns`` is the time since the epoch that events are counted from.

    ``cupti`` is the version of CUPTI's interface as raw JSON, empty if torch did not write it.
    """

    events: list[Event] = msgspec.field(name="traceEvents")
    base_ns: Annotated[int, msgspec.Meta(ge=0, le=EVER.to_ns)] = msgspec.field(
        name="baseTimeNanoseconds", default=0
    )
    cupti: msgspec.Raw = msgspec.field(name="cupti_version", default=_NOTHING)


def read_text(file: BinaryIO) -> bytes:
    """Return the JSON in a file, unpacked; raises TraceUnreadable, also if over ``LIMIT_BYTES``."""
    try:
        is_packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if is_packed:
            with gzip.GzipFile(fileobj=file) as unpacked:
                text = unpacked.read(LIMIT_BYTES + 1)
        else:
            text = file.read(LIMIT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceUnreadable(f"the trace cannot be read ({error})") from error
    if len(text) > LIMIT_BYTES:
        what = f"the trace is larger than {LIMIT_BYTES >> 20} MiB"
        raise TraceUnreadable(what, "take fewer steps, or leave stacks out")
    return text


def decode(text: bytes) -> Trace:
    """Return the trace that JSON describes; raises TraceUnreadable."""
    try:
        return parse(text, Trace)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceUnreadable(
            f"the trace is damaged ({error})", "the process may have ended while it wrote"
        ) from error


PYTHON_FUNCTION = "python_function"
GPU_ANNOTATION = "gpu_user_annotation"
ANNOTATIONS = frozenset({"user_annotation", GPU_ANNOTATION})
# Events of torch itself: each has an id, to which work of the device is linked.
FRONTEND = frozenset({"cpu_op", "user_annotation", PYTHON_FUNCTION})
# Calls of the driver, and the profiler's own work: linked to the operator that they were made for,
# or to none.
LINKED_HOST = frozenset(
    {
        "cuda_runtime",
        "cuda_driver",
        "overhead",
        "external_correlation",
        "xpu_runtime",
        "glow_runtime",
        "mtia_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
    }
)
# Others, such as cuda_sync, are no work of a device: they say what waited for it.
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "collective_comm", GPU_ANNOTATION})
_WIDENED_NS = 1
"""By how many ns Kineto has a range on a device begin before its first kernel, and end later."""
MEMORY = "[memory]"
_LEFT_OUT = frozenset({
    "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
    "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr", "aten::_version",
})  # fmt: skip
"""Names that torch keeps out of its own tables."""
_HOST_MEMORY = (0, 2, 5)  # c10::DeviceType: CPU, MKLDNN, IDEEP
_DEVICE_MEMORY = (1, 6, 12, 20)  # CUDA, HIP, XPU, PrivateUse1

Thread = tuple[int | str, int | str]
"""PID and thread id; the thread of work without an operator is ``NO_THREAD``."""
NO_THREAD: Thread = ("", "")


class DeviceSpan(NamedTuple):
    """Something that ran on a device, ``device`` its number and stream.

    ``linked`` is the id of the operator that it was launched by, 0 for none. ``correlation`` is
    that of the call of the driver that launched it.
    """

    name: str
    category: str
    device: Thread
    start_ns: int
    end_ns: int
    linked: int
    correlation: int


class MemoryChange(NamedTuple):
    """Bytes allocated or (below 0) freed."""

    at_ns: int
    host_bytes: int
    device_bytes: int


@dataclass(slots=True, eq=False)
class HostSpan:
    """Something that ran on a thread; ``id`` is that of an operator or range, 0 for what has none.

    ``operators.nest`` fills in the last four: ``kernels_ns`` is the time of what it launched on a
    device, ``device_ns`` with what its children launched.
    """

    name: str
    category: str
    thread: Thread
    start_ns: int
    end_ns: int
    id: int
    event: Event | None
    parent: HostSpan | None = None
    children: list[HostSpan] = field(default_factory=list)
    kernels_ns: int = 0
    device_ns: int = 0

    @property
    def duration_ns(self) -> int:
        """The time with all of its calls."""
        return self.end_ns - self.start_ns


class Spans(NamedTuple):
    """The content of a trace, in the order of the file; changes of memory are in order of time."""

    host: list[HostSpan]
    device: list[DeviceSpan]
    memory: list[MemoryChange]


def read_spans(trace: Trace) -> Spans:
    """Return the spans on host and device in a trace, and the changes of memory."""
    host: list[HostSpan] = []
    device: list[DeviceSpan] = []
    memory: list[MemoryChange] = []
    for event in trace.events:
        if event.name == MEMORY:
            memory.append(_memory_change(event, trace.base_ns))
        elif event.ph != "X" or event.name in _LEFT_OUT:
            continue
        elif event.cat in FRONTEND | LINKED_HOST:
            host.append(_host_span(event, trace.base_ns))
        elif event.cat in DEVICE:
            device.append(_device_span(event, trace.base_ns))
    # Calls of the driver are put on the thread of the operator that they are linked to, as torch
    # does; others on none.
    threads = {span.id: span.thread for span in host if span.category in FRONTEND and span.id}
    for span in host:
        if span.category in LINKED_HOST:
            span.thread = threads.get(span.id, NO_THREAD)
            span.id = 0
    memory.sort(key=lambda change: change.at_ns)
    return Spans(host, device, memory)


def _memory_change(event: Event, base_ns: int) -> MemoryChange:
    size, kind = whole_number(event.args.bytes), whole_number(event.args.device_type)
    on_host = size if kind in _HOST_MEMORY else 0
    on_device = size if kind in _DEVICE_MEMORY else 0
    at_ns = base_ns + time_ns(event.ts)
    return MemoryChange(at_ns, on_host, on_device)


def _host_span(event: Event, base_ns: int) -> HostSpan:
    start_ns, number = base_ns + time_ns(event.ts), whole_number(event.args.external_id)
    end_ns = start_ns + time_ns(event.dur)
    thread = event.pid, event.tid
    return HostSpan(event.name, event.cat, thread, start_ns, end_ns, number, event)


def _device_span(event: Event, base_ns: int) -> DeviceSpan:
    start_ns, linked = base_ns + time_ns(event.ts), whole_number(event.args.external_id)
    end_ns = start_ns + time_ns(event.dur)
    if event.cat == GPU_ANNOTATION:
        # It spans work that has the same link, and would count twice.
        start_ns, end_ns, linked = start_ns + _WIDENED_NS, end_ns - _WIDENED_NS, 0
    thread, correlation = (event.pid, event.tid), whole_number(event.args.correlation)
    return DeviceSpan(event.name, event.cat, thread, start_ns, end_ns, linked, correlation)


def whole_number(raw: msgspec.Raw) -> int:
    """Return the integer in raw JSON; 0 if it is none, or one that no machine counts up to."""
    try:
        number = int(bytes(raw))
    except ValueError:
        return 0
    return number if abs(number) < 1 << 53 else 0


MARKED_STEP = "ProfilerStep#"
_OPTIMIZER = "Optimizer.step#"


def find_steps(spans: Spans, begun_ns: int | None) -> tuple[WindowStep, ...]:
    """Return the whole steps in order of time, the first from ``begun_ns`` if that is given."""
    marked = sorted(
        WindowStep(span.start_ns, span.end_ns)
        for span in spans.host
        if span.name.startswith(MARKED_STEP)
    )
    if marked:
        return tuple(marked)
    updates: defaultdict[str, list[int]] = defaultdict(list)
    for span in spans.host:
        if span.name.startswith(_OPTIMIZER):
            updates[span.name].append(span.end_ns)
    # Of several optimizers, the one that updates most often.
    busiest: list[int] = max(updates.values(), key=len, default=[])
    ends = [*([] if begun_ns is None else [begun_ns]), *sorted(busiest)]
    return tuple(WindowStep(start, end) for start, end in pairwise(ends))
