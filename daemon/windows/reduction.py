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
import sqlite3
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
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
from profd.daemon.timerange import EVER
from profd.daemon.windows.completeness import streams_of
from profd.daemon.windows.operators import sum_up
from profd.daemon.windows.spans import GPU_ANNOTATION, Spans, find_steps
from profd.daemon.windows.trace import TraceReader, TraceUnreadable, read_text

Kept = TypeVar("Kept", HostGap, WindowWait)
KEPT_BYTES = 32 << 20
"""The most that a gzipped trace may take in a run file."""
TIMEOUT_S = 600.0
_WITH_STEP = "--begins-with-step"
KEPT_GAPS = 1 << 16
"""How many gaps are kept at most, the longest ones: a window of many steps has millions."""
_COLLECTIVE = "(?i)nccl|rccl"
_WAITS = (
    r"(cuda|hip)((Stream|Device|Event)Synchronize|Malloc|Free|HostAlloc|FreeHost|MallocHost"
    r"|HostMalloc|HostFree)$"
    r"|cuMem(Create|Map|Unmap|Release)$"
)
_IS_WORK = f"NOT misdated AND category <> '{GPU_ANNOTATION}' AND gpu IS NOT NULL"


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


class Packing:
    """The text of a trace, gzipped meanwhile."""

    def __init__(self) -> None:
        self._packed, self.text_bytes = tempfile.TemporaryFile(), 0  # noqa: SIM115  the whole life

    def passing(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the parts that are given."""
        # Levels of gzip above 1 save a few percent and take several times as long.
        with gzip.GzipFile(fileobj=self._packed, mode="wb", compresslevel=1) as zipper:
            for part in parts:
                self.text_bytes += len(part)
                zipper.write(part)
                yield part

    def packed(self) -> bytes | None:
        """Return what was packed; None if it is too large to be kept."""
        if self._packed.tell() > KEPT_BYTES:
            return None
        self._packed.seek(0)
        return self._packed.read()


def reduce(file: BinaryIO, *, begins_with_step: bool) -> Reduction:
    """Return the summary of the trace in a file; raises TraceUnreadable."""
    try:
        packing = Packing()
        spans = Spans(TraceReader(packing.passing(read_text(file))))
        reduction = _reduction(spans, packing, begins_with_step=begins_with_step)
    except (sqlite3.Error, OverflowError, OSError) as error:
        raise TraceUnreadable(f"the trace cannot be summed up ({error})") from error
    fields = (
        field
        for one in (reduction, *reduction.operators, *reduction.gpus, *reduction.streams)
        for field in msgspec.structs.astuple(one)
    )
    if not all(abs(field) < 1 << 63 for field in fields if isinstance(field, int)):
        raise TraceUnreadable("the trace is damaged (its sums are larger than any machine's)")
    return reduction


def _reduction(spans: Spans, packing: Packing, *, begins_with_step: bool) -> Reduction:
    whole = "SELECT start, end FROM host UNION ALL SELECT start, end FROM device WHERE NOT misdated"
    ((first_ns, last_ns),) = spans.select(f"SELECT min(start), max(end) FROM ({whole})")
    if first_ns is None:
        raise TraceUnreadable("the trace is empty", "nothing ran in torch while it was taken")
    start_ns, end_ns = spans.base_ns + first_ns, spans.base_ns + last_ns
    gpus, gaps = gpu_times(spans)
    values = msgspec.structs.astuple
    return Reduction(
        start_ns,
        end_ns,
        find_steps(spans, start_ns if begins_with_step else None),
        gpus,
        gaps,
        _longest(waits_of(spans)),
        tuple(OperatorTotals(*values(key), *values(row)) for key, row in sum_up(spans).items()),
        packing.text_bytes,
        packing.packed(),
        streams_of(spans),
    )


def gpu_times(spans: Spans) -> tuple[tuple[WindowGpu, ...], tuple[HostGap, ...]]:
    """Return the time of each GPU in a trace that did anything, and the gaps that the host caused.

    A GPU counts from its first work to its last. A gap ends with the work that begins next. The
    host caused it until the call that launched this work was over: before that there was nothing to
    run. The rest is the wait of the work for GPUs, and the latency of the launch. Work without a
    launch was launched before the trace began.
    """
    gpus: list[WindowGpu] = []
    sql = (
        "SELECT gpu, device.start, device.end, launch.end, tid FROM device LEFT JOIN launch "
        f"USING (correlation) WHERE {_IS_WORK} ORDER BY gpu, device.start, device.end"
    )

    def gaps() -> Iterator[HostGap]:
        for gpu, work in groupby(spans.select(sql), key=itemgetter(0)):
            gpus.append((yield from _gaps_of(gpu, spans.base_ns, work)))

    longest = _longest(gaps())
    return tuple(gpus), longest


def _longest(found: Iterable[Kept]) -> tuple[Kept, ...]:
    """Return the longest gaps or waits, as many as are kept, in order."""
    kept = heapq.nlargest(KEPT_GAPS, found, key=lambda one: one.end_ns - one.start_ns)
    return tuple(sorted(kept))


def _gaps_of(
    gpu: int, base_ns: int, work: Iterable[tuple[int, int, int, int | None, int]]
) -> Generator[HostGap, None, WindowGpu]:
    """Yield the gaps of a GPU that the host caused, and return its time."""
    first_ns: int | None = None
    # Until when something runs, and until when two things do.
    one_ns = two_ns = 0
    idle_ns = overlap_ns = host_ns = 0
    for _, start_ns, end_ns, launched_ns, tid in work:
        if first_ns is None:
            first_ns = one_ns = two_ns = start_ns
        if start_ns > one_ns:
            idle_ns += start_ns - one_ns
            late_ns = one_ns if launched_ns is None else min(launched_ns, start_ns)
            if late_ns > one_ns:
                host_ns += late_ns - one_ns
                yield HostGap(gpu, base_ns + one_ns, base_ns + late_ns, tid)
        both_ns = min(end_ns, one_ns)
        overlap_ns += max(both_ns - max(start_ns, two_ns), 0)
        one_ns, two_ns = max(one_ns, end_ns), max(two_ns, both_ns)
    return WindowGpu(gpu, one_ns - (first_ns or 0) - idle_ns, idle_ns, overlap_ns, host_ns)


def waits_of(spans: Spans) -> Iterator[WindowWait]:
    """Yield the calls in which threads wait for GPUs or their memory.

    Yield also when a GPU does nothing but a collective.
    """
    base_ns = spans.base_ns
    calls = f"SELECT name, start, end, tid FROM host WHERE name IN ({spans.named(_WAITS)})"
    for name, start_ns, end_ns, tid in spans.select(f"{calls} AND NOT of_torch"):
        yield WindowWait(spans.text(name), base_ns + start_ns, base_ns + end_ns, tid)
    work = f"SELECT gpu, start, end, name IN ({spans.named(_COLLECTIVE)}) FROM device"
    ordered = spans.select(f"{work} WHERE {_IS_WORK} ORDER BY gpu, start")
    for _, rows in groupby(ordered, key=itemgetter(0)):
        for start_ns, end_ns in _alone(rows):
            yield WindowWait(COLLECTIVE, base_ns + start_ns, base_ns + end_ns, 0)


def _alone(work: Iterable[tuple[int, int, int, bool]]) -> Iterator[tuple[int, int]]:
    """Yield from when to when a GPU does nothing but collectives; its work is in order of time."""
    # Since the last work began: until when collectives run, and until when other work does.
    begun_ns = collective_ns = other_ns = -EVER.to_ns
    start_ns = end_ns = -EVER.to_ns
    for _, next_ns, over_ns, is_collective in chain(work, ((0, EVER.to_ns, EVER.to_ns, False),)):
        from_ns, to_ns = max(begun_ns, other_ns), min(next_ns, collective_ns)
        if from_ns < to_ns:
            if from_ns > end_ns and end_ns > start_ns:
                yield start_ns, end_ns
            start_ns, end_ns = start_ns if from_ns == end_ns else from_ns, to_ns
        begun_ns = next_ns
        if is_collective:
            collective_ns = max(collective_ns, over_ns)
        else:
            other_ns = max(other_ns, over_ns)
    if end_ns > start_ns:
        yield start_ns, end_ns


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
