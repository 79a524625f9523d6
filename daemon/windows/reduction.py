"""Reduces the file of a trace to its summary in a run file.

It runs as a process of its own, ``python -m profd.daemon.windows.reduction``, with the trace as
stdin and the answer on stdout: a large trace takes seconds, which would hold up the session, and
much memory. The trace may be anybody's, so a process that starts as root becomes nobody first.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import heapq
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import BinaryIO, TypeVar

import msgspec

from profd.daemon import asuser, processes, program
from profd.daemon.errors import ProfdError
from profd.daemon.store.records import (
    COLLECTIVE,
    HostGap,
    OperatorTotals,
    Time,
    WindowGpu,
    WindowStep,
    WindowStream,
    WindowWait,
)
from profd.daemon.store.stepfunction import IntervalSet
from profd.daemon.windows import trace
from profd.daemon.windows.completeness import launches_of, misdated_in, streams_of
from profd.daemon.windows.operators import sum_up
from profd.daemon.windows.trace import (
    DeviceSpan,
    Event,
    HostSpan,
    Spans,
    TraceUnreadable,
    find_steps,
    read_spans,
)

Kept = TypeVar("Kept", HostGap, WindowWait)
KEPT_BYTES = 32 << 20
"""The most that a gzipped trace may take in a run file."""
TIMEOUT_S = 600.0
_WITH_STEP = "--begins-with-step"
KEPT_GAPS = 1 << 16
"""How many gaps are kept at most, the longest ones: a window of many steps has millions."""
_COLLECTIVE = re.compile("(?i)nccl|rccl")
_WAITS = re.compile(
    r"(cuda|hip)((Stream|Device|Event)Synchronize|Malloc|Free|HostAlloc|FreeHost|MallocHost"
    r"|HostMalloc|HostFree)$"
    r"|cuMem(Create|Map|Unmap|Release)$"
)


class Reduction(msgspec.Struct, frozen=True):
    """The summary of a trace.

    ``trace`` is gzipped, None if that is larger than ``KEPT_BYTES``.
    """

    start_ns: Time
    end_ns: Time
    steps: tuple[WindowStep, ...]
    gpus: tuple[WindowGpu, ...]
    gaps: tuple[HostGap, ...]
    waits: tuple[WindowWait, ...]
    operators: tuple[OperatorTotals, ...]
    trace_bytes: int
    trace: bytes | None
    streams: tuple[WindowStream, ...]


def reduce(file: BinaryIO, *, begins_with_step: bool) -> Reduction:
    """Return the summary of the trace in a file; raises TraceUnreadable."""
    text = trace.read_text(file)
    given = trace.decode(text)
    read = read_spans(given)
    launches = launches_of(read)
    misdated = misdated_in(read, launches)
    streams = streams_of(read, launches, misdated, trace.whole_number(given.cupti))
    spans = read._replace(device=[one for one in read.device if one not in misdated])
    everything: list[HostSpan | DeviceSpan] = [*spans.host, *spans.device]
    if not everything:
        raise TraceUnreadable("the trace is empty", "nothing ran in torch while it was taken")
    start_ns = min(one.start_ns for one in everything)
    end_ns = max(one.end_ns for one in everything)
    # Levels of gzip above 1 save a few percent and take several times as long.
    packed, (gpus, gaps) = gzip.compress(text, 1), gpu_times(spans, launches)
    values = msgspec.structs.astuple
    steps = find_steps(spans, start_ns if begins_with_step else None)
    operators = tuple(
        OperatorTotals(*values(key), *values(totals)) for key, totals in sum_up(spans).items()
    )
    kept = packed if len(packed) <= KEPT_BYTES else None
    waits = _longest(waits_of(spans))
    reduction = Reduction(
        start_ns, end_ns, steps, gpus, gaps, waits, operators, len(text), kept, streams
    )
    fields = (
        field
        for one in (reduction, *reduction.operators, *gpus, *streams)
        for field in msgspec.structs.astuple(one)
    )
    if not all(abs(field) < 1 << 63 for field in fields if isinstance(field, int)):
        raise TraceUnreadable("the trace is damaged (its sums are larger than any machine's)")
    return reduction


def gpu_times(
    spans: Spans, launches: Mapping[int, HostSpan]
) -> tuple[tuple[WindowGpu, ...], tuple[HostGap, ...]]:
    """Return the time of each GPU in a trace that did anything, and the gaps that the host caused.

    A GPU counts from its first work to its last. A gap ends with the work that begins next. The
    host caused it until the call that launched this work was over: before that there was nothing to
    run. The rest is the wait of the work for GPUs, and the latency of the launch. Work without a
    launch was launched before the trace began.
    """
    work: defaultdict[int, list[DeviceSpan]] = defaultdict(list)
    for one in spans.device:
        if one.category not in trace.ANNOTATIONS and isinstance(one.device[0], int):
            work[one.device[0]].append(one)
    gaps: list[HostGap] = []
    gpus = tuple(_time_of(gpu, work[gpu], launches, gaps) for gpu in sorted(work))
    return gpus, _longest(gaps)


def _longest(found: Iterable[Kept]) -> tuple[Kept, ...]:
    """Return the longest gaps or waits, as many as are kept, in order."""
    kept = heapq.nlargest(KEPT_GAPS, found, key=lambda one: one.end_ns - one.start_ns)
    return tuple(sorted(kept))


def _thread_of(event: Event) -> int:
    """Return the id of the thread that an event is of; 0 if it is no number."""
    return abs(event.tid) & 0xFFFFFFFF if isinstance(event.tid, int) else 0


def _time_of(
    gpu: int, work: Iterable[DeviceSpan], launches: Mapping[int, HostSpan], gaps: list[HostGap]
) -> WindowGpu:
    """Return the time of a GPU with this work, and add to the gaps those that the host caused."""
    ordered = sorted(work, key=attrgetter("start_ns", "end_ns"))
    # Until when something runs, and until when two things do.
    one_ns = two_ns = ordered[0].start_ns
    idle_ns = overlap_ns = host_ns = 0
    for span in ordered:
        if span.start_ns > one_ns:
            idle_ns += span.start_ns - one_ns
            launch = launches.get(span.correlation)
            late_ns = min(launch.end_ns, span.start_ns) if launch else one_ns
            if launch and launch.event and late_ns > one_ns:
                host_ns += late_ns - one_ns
                gaps.append(HostGap(gpu, one_ns, late_ns, _thread_of(launch.event)))
        both_ns = min(span.end_ns, one_ns)
        overlap_ns += max(both_ns - max(span.start_ns, two_ns), 0)
        one_ns, two_ns = max(one_ns, span.end_ns), max(two_ns, both_ns)
    return WindowGpu(gpu, one_ns - ordered[0].start_ns - idle_ns, idle_ns, overlap_ns, host_ns)


def waits_of(spans: Spans) -> Iterator[WindowWait]:
    """Yield the calls in which threads wait for GPUs or their memory.

    Yield also when a GPU does nothing but a collective.
    """
    for span in spans.host:
        if (
            span.category in trace.LINKED_HOST
            and _WAITS.match(span.name)
            and span.event is not None
        ):
            yield WindowWait(span.name, span.start_ns, span.end_ns, _thread_of(span.event))
    exchanges: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)
    others: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)
    for one in sorted(spans.device, key=attrgetter("start_ns")):
        if one.category not in trace.ANNOTATIONS and isinstance(one.device[0], int):
            (exchanges if _COLLECTIVE.match(one.name) else others)[one.device[0]].add(
                one.start_ns, one.end_ns
            )
    for gpu, exchange in exchanges.items():
        for start_ns, end_ns in exchange.ranges():
            for from_ns, to_ns in (*others[gpu].ranges_between(start_ns, end_ns), (end_ns, end_ns)):
                if from_ns > start_ns:
                    yield WindowWait(COLLECTIVE, start_ns, from_ns, 0)
                start_ns = to_ns


async def reduce_apart(file: int, *, begins_with_step: bool) -> Reduction:
    """Reduce a trace in a process of its own.

    Raises TraceUnreadable, also if that fails or takes too long.
    """
    words = program.words("profd.daemon.windows.reduction", *[_WITH_STEP] * begins_with_step)
    process = await asyncio.create_subprocess_exec(
        *words, stdin=file, stdout=asyncio.subprocess.PIPE
    )
    reading = asyncio.ensure_future(process.communicate())
    try:
        said, _ = await asyncio.wait_for(asyncio.shield(reading), TIMEOUT_S)
    except (asyncio.CancelledError, asyncio.TimeoutError) as error:
        # Not waited for: it may hang in the file system of the trace.
        process.kill()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise TraceUnreadable(
            f"the trace was not read within {TIMEOUT_S:.0f} s", "take fewer steps"
        ) from None
    try:
        answer = msgspec.msgpack.decode(said, type=Reduction | tuple[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise TraceUnreadable("reading the trace broke off", "memory may have run out") from None
    if isinstance(answer, tuple):
        raise TraceUnreadable(*answer)
    return answer


def main() -> None:
    asuser.become(*processes.NOBODY)
    os.nice(10)
    # All objects are kept to the end: looking for garbage would only cost a quarter of the time.
    gc.disable()
    answer: Reduction | tuple[str, str]
    try:
        answer = reduce(sys.stdin.buffer, begins_with_step=_WITH_STEP in sys.argv[1:])
    except ProfdError as error:
        answer = (error.what, error.remedy)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
