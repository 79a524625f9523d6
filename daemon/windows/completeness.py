"""What a trace of GPUs lacks: Kineto and CUPTI drop work, or give it times of another clock.

In a whole trace each launch of a kernel has work (docs/windows.md lists the traces that were looked
at). Work without a launch is no loss: some libraries launch by ways that are not traced.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from profd.daemon.clock import MILLISECOND_NS, MINUTE_NS
from profd.daemon.store.records import WindowStream
from profd.daemon.windows import trace
from profd.daemon.windows.trace import DeviceSpan, HostSpan, Spans, Thread

_LAUNCHES_KERNEL = re.compile(r"(cuda|hip|cu)(Ext)?(Module)?(Launch\w*Kernel|GraphLaunch)")
_NO_STREAM: Thread = ("", "")
_COUNTS = WindowStream.__struct_fields__[3:]


def launches_of(spans: Spans) -> dict[int, HostSpan]:
    """Return the calls of the driver by the correlation of the work that they launched."""
    found: dict[int, HostSpan] = {}
    for span in spans.host:
        if span.category in trace.LINKED_HOST and span.event is not None:
            correlation = trace.whole_number(span.event.args.correlation)
            if correlation and (
                correlation not in found or found[correlation].end_ns < span.end_ns
            ):
                found[correlation] = span
    return found


def misdated_in(spans: Spans, launches: Mapping[int, HostSpan]) -> set[DeviceSpan]:
    """Return the work of a trace that has the times of another clock, by all its launches.

    It ends before its launch begins, or lies far from all that the host did.
    """
    calls = launches.values()
    if not calls:
        return set()
    first_ns, last_ns = min(one.start_ns for one in calls), max(one.end_ns for one in calls)
    far_ns = max(last_ns - first_ns, MINUTE_NS)  # a queue may be long
    from_ns = {one: span.start_ns - MILLISECOND_NS for one, span in launches.items()}
    return {
        work
        for work in spans.device
        if work.end_ns < from_ns.get(work.correlation, first_ns - far_ns)
        or work.start_ns > last_ns + far_ns
    }


def streams_of(
    spans: Spans, calls: Mapping[int, HostSpan], misdated: set[DeviceSpan], cupti: int
) -> tuple[WindowStream, ...]:
    """Return by stream what a trace has of launches, which are among ``calls``, and of work.

    The launches without work are in a row of their own: what has no work has no stream.
    """
    work = [one for one in spans.device if one.category not in trace.ANNOTATIONS]
    stream_of = {one.correlation: one.device for one in work}
    launches = {one: span for one, span in calls.items() if _LAUNCHES_KERNEL.match(span.name)}
    begins_ns = (launches[one].start_ns for one in stream_of.keys() & launches.keys())
    begun_ns = min(begins_ns, default=0)
    counts: defaultdict[Thread, Counter[str]] = defaultdict(Counter)
    for correlation, span in launches.items():
        is_lost = correlation not in stream_of
        counts[stream_of.get(correlation, _NO_STREAM)].update(
            launches=1, lost=is_lost, first=is_lost and span.start_ns < begun_ns
        )
    for one in work:
        is_alone = one.category == "kernel" and one.correlation not in launches
        counts[one.device].update(unlaunched=is_alone, misdated=one in misdated)
    return tuple(_stream(device, row, cupti) for device, row in counts.items())


def _stream(device: Thread, counts: Counter[str], cupti: int) -> WindowStream:
    gpu, stream = (abs(one) if isinstance(one, int) else 0 for one in device)
    return WindowStream(gpu, stream, cupti, *map(counts.__getitem__, _COUNTS))
