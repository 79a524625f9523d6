"""Sums a trace by operator and input shape, as torch's own ``key_averages()`` does.

Times are integer nanoseconds, so sums are exact. Rows are by shape; the table by name alone is
their sum.

A span that lies within another one on the same thread was called by it. A call whose only call is
one of the same name counts once.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, groupby

import msgspec

from profd.daemon.store.stepfunction import IntervalSet
from profd.daemon.windows.spans import ANNOTATIONS, MARKED_STEP, MEMORY, PYTHON_FUNCTION, Spans

_CALLS = """
    SELECT coalesce(thread, -1) AS thread, name, category, start, end, shapes, ns FROM (
        SELECT host.rowid AS place, thread, name, category, start, end, shapes,
            coalesce(ns, 0) AS ns
        FROM host LEFT JOIN launched ON launched.id = host.id AND host.id WHERE of_torch
        UNION ALL SELECT host.rowid, operator.thread, name, category, start, end, shapes, 0
        FROM host LEFT JOIN operator ON operator.id = host.id AND host.id WHERE NOT of_torch
    ) ORDER BY thread, start, end DESC, place
"""
"""Calls of the driver are on the thread of the operator that they are linked to, as torch has them;
others on none.
"""
_NO_BYTES = 0, 0


@dataclass(slots=True)
class Call:
    """A call of the host; ``kernels_ns`` is the time of what it launched on a device itself.

    ``held`` are the bytes on host and device that it allocated minus those that it freed. The rest
    is of the calls that it made: how many, their sums, and ``only`` the first as long as there is
    no second. In the end ``device_ns`` is the time of all that was launched.
    """

    name: int
    category: str
    start_ns: int
    end_ns: int
    shapes: int
    kernels_ns: int
    calls: int = 0
    only: Call | None = None
    calls_ns: int = 0
    device_ns: int = 0
    held: tuple[int, int] = _NO_BYTES
    held_by_calls: tuple[int, int] = _NO_BYTES

    @property
    def duration_ns(self) -> int:
        """The time with all of its calls."""
        return self.end_ns - self.start_ns


class CallStack:
    """The calls of a thread that are not over, the innermost last."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger, self._open = ledger, list[Call]()

    def begin(self, call: Call) -> Iterator[Call]:
        """Begin a call; yield those that are over, in which others may be folded."""
        while self._open and (
            call.start_ns >= self._open[-1].end_ns or call.end_ns > self._open[-1].end_ns
        ):
            yield from self._end_one()
        self._open.append(call)

    def end(self) -> Iterator[Call]:
        while self._open:
            yield from self._end_one()

    def _end_one(self) -> Iterator[Call]:
        call = self._open.pop()
        only, call.only = call.only, None
        if only is not None and only.name == call.name:
            call.kernels_ns, call.calls_ns = only.kernels_ns, only.calls_ns
            call.device_ns = only.device_ns - only.kernels_ns
            call.held_by_calls = only.held_by_calls
        elif only is not None:
            yield only
        call.device_ns += call.kernels_ns
        call.held = self._ledger.within(call)
        if not self._open:
            yield call
            return
        caller = self._open[-1]
        caller.calls += 1
        caller.calls_ns += call.duration_ns
        caller.device_ns += call.device_ns
        on_host, on_device = caller.held_by_calls
        caller.held_by_calls = on_host + call.held[0], on_device + call.held[1]
        if caller.calls == 1:
            caller.only = call
            return
        if caller.only is not None:
            yield caller.only
            caller.only = None
        yield call


def calls_in(spans: Spans, ledger: MemoryLedger) -> Iterator[Call]:
    """Yield the calls of the host with the sums of their own calls.

    Those that are folded into a caller of the same name are left out.
    """
    for _, rows in groupby(spans.select(_CALLS), key=lambda row: row[0]):
        stack = CallStack(ledger)
        for _, *fields in rows:
            yield from stack.begin(Call(*fields))
        yield from stack.end()


class MemoryLedger:
    """All changes of memory in a trace, in order of time: bytes allocated minus bytes freed."""

    def __init__(self, spans: Spans) -> None:
        def in_order(column: str) -> Iterator[int]:
            return (one for (one,) in spans.select(f"SELECT {column} FROM memory ORDER BY at"))

        self._times = array("q", in_order("at"))
        self._host = array("q", accumulate(in_order("host_bytes"), initial=0))
        self._device = array("q", accumulate(in_order("device_bytes"), initial=0))

    def within(self, call: Call) -> tuple[int, int]:
        """Return the bytes on host and device from a call's start to its end, both included."""
        first, after = (
            bisect_left(self._times, call.start_ns),
            bisect_right(self._times, call.end_ns),
        )
        return self._host[after] - self._host[first], self._device[after] - self._device[first]


def changes_outside(spans: Spans) -> Iterator[tuple[int, int]]:
    """Yield the bytes on host and device of each change of memory that happened in no call."""
    calls = IntervalSet()
    has_any = "EXISTS (SELECT 1 FROM memory)"
    for times_ns in spans.select(f"SELECT start, end + 1 FROM host WHERE {has_any} ORDER BY start"):
        calls.add(*times_ns)
    for at_ns, on_host, on_device in spans.select("SELECT * FROM memory"):
        if not calls.between(at_ns, at_ns + 1):
            yield on_host, on_device


NO_SHAPES = "[]"


def _printed(dims: bytes) -> str:
    """Return the shapes of a call's inputs, as torch prints them."""
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

    def hold(self, held: tuple[int, int], of_calls: tuple[int, int] = _NO_BYTES) -> None:
        """Add the bytes of a call on host and device, of which its own calls have a part."""
        self.cpu_bytes += held[0]
        self.cuda_bytes += held[1]
        self.self_cpu_bytes += held[0] - of_calls[0]
        self.self_cuda_bytes += held[1] - of_calls[1]


Operators = dict[OperatorKey, Totals]


def sum_up(spans: Spans) -> Operators:
    """Return the totals of every operator, range and kernel."""
    operators: defaultdict[OperatorKey, Totals] = defaultdict(Totals)
    ledger = MemoryLedger(spans)
    for held in changes_outside(spans):
        totals = operators[OperatorKey(MEMORY, HOST, False)]
        totals.calls += 1
        totals.hold(held)

    @functools.cache
    def key_of(name: int, category: str, shapes: int) -> OperatorKey:
        dims = spans.text(shapes)
        printed = _printed(dims) if dims else NO_SHAPES
        return OperatorKey(_row_name(spans.text(name)), HOST, category in ANNOTATIONS, printed)

    for call in calls_in(spans, ledger):
        if call.category != PYTHON_FUNCTION:
            totals = operators[key_of(call.name, call.category, call.shapes)]
            totals.calls += 1
            totals.cpu_total_ns += call.duration_ns
            totals.self_cpu_ns += call.duration_ns - call.calls_ns
            totals.cuda_total_ns += call.device_ns
            totals.self_cuda_ns += call.kernels_ns
            totals.hold(call.held, call.held_by_calls)
    work = "SELECT name, category, count(*), sum(end - start) FROM device WHERE NOT misdated"
    for name, category, calls, took_ns in spans.select(f"{work} GROUP BY name, category"):
        row_name, is_note = _row_name(spans.text(name)), category in ANNOTATIONS
        totals = operators[OperatorKey(row_name, DEVICE, is_note)]
        totals.calls += calls
        totals.self_cuda_ns += took_ns
        totals.cuda_total_ns += took_ns
    return dict(operators)


def _row_name(name: str) -> str:
    return "ProfilerStep*" if name.startswith(MARKED_STEP) else name
