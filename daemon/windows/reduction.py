"""Reduces the file of a trace to what a run file keeps of it.

Runs as a process of its own, ``python -m profd.daemon.windows.reduction``, with the trace as stdin and the answer on
stdout: a large trace takes seconds, which would hold up the session, and much memory. The trace may be anybody's, so
a process that starts as root becomes nobody first.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import sys
from typing import BinaryIO

import msgspec

from profd.daemon import asuser, processes
from profd.daemon.errors import ProfdError
from profd.daemon.store.records import HostGap, OperatorTotals, Time, WindowGpu, WindowStep
from profd.daemon.windows import trace
from profd.daemon.windows.gaps import gpu_times
from profd.daemon.windows.operators import sum_up
from profd.daemon.windows.trace import TraceUnreadable, find_steps, read_spans

KEPT_BYTES = 32 << 20
"""The most that a gzipped trace may take in a run file."""
TIMEOUT_S = 600.0
_LARGEST = (1 << 63) - 1
_QUICK = 1  # levels of gzip above it save a few percent and take several times as long
_WITH_STEP = "--begins-with-step"


class Reduction(msgspec.Struct, frozen=True):
    """The summary of a trace; ``trace`` is gzipped, None where that is larger than ``KEPT_BYTES``."""

    start_ns: Time
    end_ns: Time
    steps: tuple[WindowStep, ...]
    gpus: tuple[WindowGpu, ...]
    gaps: tuple[HostGap, ...]
    operators: tuple[OperatorTotals, ...]
    trace_bytes: int
    trace: bytes | None


def reduce(file: BinaryIO, *, begins_with_step: bool) -> Reduction:
    """Return the summary of the trace in a file; raises TraceUnreadable."""
    text = trace.read_text(file)
    spans = read_spans(trace.decode(text))
    everything = [(span.start_ns, span.end_ns) for span in spans.host]
    everything += [(work.start_ns, work.end_ns) for work in spans.device]
    if not everything:
        raise TraceUnreadable("the trace is empty", "nothing ran in torch while it was taken")
    start_ns, end_ns = min(start for start, _ in everything), max(end for _, end in everything)
    packed = gzip.compress(text, _QUICK)
    gpus, gaps = gpu_times(spans)
    reduction = Reduction(
        start_ns=start_ns,
        end_ns=end_ns,
        steps=find_steps(spans, start_ns if begins_with_step else None),
        gpus=gpus,
        gaps=gaps,
        operators=tuple(
            OperatorTotals(*msgspec.structs.astuple(key), *msgspec.structs.astuple(totals))
            for key, totals in sum_up(spans).items()
        ),
        trace_bytes=len(text),
        trace=packed if len(packed) <= KEPT_BYTES else None,
    )
    fields = (field for one in (reduction, *reduction.operators, *gpus) for field in msgspec.structs.astuple(one))
    if not all(-_LARGEST <= field <= _LARGEST for field in fields if isinstance(field, int)):
        raise TraceUnreadable("the trace is damaged (its sums are larger than any machine's)")
    return reduction


async def reduce_apart(file: int, *, begins_with_step: bool) -> Reduction:
    """Reduce the trace in an open file, in a process of its own.

    Raises TraceUnreadable, also where that process fails, or has not ended within ``TIMEOUT_S``.
    """
    words = [sys.executable, "-m", "profd.daemon.windows.reduction", *[_WITH_STEP] * begins_with_step]
    process = await asyncio.create_subprocess_exec(*words, stdin=file, stdout=asyncio.subprocess.PIPE)
    reading = asyncio.ensure_future(process.communicate())
    try:
        said, _ = await asyncio.wait_for(asyncio.shield(reading), TIMEOUT_S)
    except (asyncio.CancelledError, asyncio.TimeoutError) as error:
        # Not waited for: it may hang in the file system of the trace.
        process.kill()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise TraceUnreadable(f"the trace was not read within {TIMEOUT_S:.0f} s", "take fewer steps") from None
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
