"""Adds up when the devices of a window worked: busy, idle, and two things at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from profd.daemon.store.records import DeviceTime
from profd.daemon.windows.spans import ANNOTATIONS, DeviceSpan

_WAITING = "cuda_sync"


def add_up(work: Sequence[DeviceSpan], start_ns: int, end_ns: int) -> DeviceTime | None:
    """Return the time of all devices together over a window; None where none did anything.

    Busy is where at least one thing ran, overlap where two did at once, on streams of one device.
    """
    by_device: defaultdict[int | str, list[DeviceSpan]] = defaultdict(list)
    for span in work:
        if span.category not in ANNOTATIONS and span.category != _WAITING:
            by_device[span.device[0]].append(span)
    if not by_device:
        return None
    times = [_of_one(spans, start_ns, end_ns) for spans in by_device.values()]
    busy_ns, overlap_ns = (sum(time[part] for time in times) for part in (0, 1))
    return DeviceTime(busy_ns, len(times) * (end_ns - start_ns) - busy_ns, overlap_ns)


def _of_one(spans: Sequence[DeviceSpan], start_ns: int, end_ns: int) -> tuple[int, int]:
    """Return for how long one device was at one thing or more, and at two or more."""
    edges = sorted(
        edge
        for span in spans
        for edge in ((max(span.start_ns, start_ns), 1), (min(span.end_ns, end_ns), -1))
        if span.start_ns < end_ns and span.end_ns > start_ns
    )
    busy_ns = overlap_ns = running = 0
    before_ns = start_ns
    for at_ns, change in edges:
        busy_ns += at_ns - before_ns if running >= 1 else 0
        overlap_ns += at_ns - before_ns if running >= 2 else 0
        running, before_ns = running + change, at_ns
    return busy_ns, overlap_ns
