"""The gaps of GPUs in a trace: for how long nothing ran, and how much of that the host caused.

A GPU counts from its first work to its last. A gap ends with the work that begins next. The host caused it for as long
as the call that launched this work was not over: until then there was nothing to run. The rest is what the work waited
for on GPUs, and the latency of the launch. Work whose launch is not in the trace was launched before the trace began.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter

from profd.daemon.store.records import HostGap, WindowGpu
from profd.daemon.windows.trace import ANNOTATIONS, LINKED_HOST, DeviceSpan, HostSpan, Spans, whole_number

KEPT_GAPS = 1 << 16
"""The most gaps that are kept, the longest ones: a window of many steps has millions."""
_TID = (1 << 32) - 1


def gpu_times(spans: Spans) -> tuple[tuple[WindowGpu, ...], tuple[HostGap, ...]]:
    """Return the time of each GPU that did anything in a trace, by its number, and the gaps that the host caused."""
    launches: dict[int, HostSpan] = {}
    for span in spans.host:
        if span.category in LINKED_HOST and span.event is not None:
            correlation = whole_number(span.event.args.correlation)
            if correlation and (correlation not in launches or launches[correlation].end_ns < span.end_ns):
                launches[correlation] = span
    work: defaultdict[int, list[DeviceSpan]] = defaultdict(list)
    for one in spans.device:
        if one.category not in ANNOTATIONS and isinstance(one.device[0], int):
            work[one.device[0]].append(one)
    gaps: list[HostGap] = []
    gpus = tuple(_time_of(gpu, work[gpu], launches, gaps) for gpu in sorted(work))
    return gpus, tuple(sorted(heapq.nlargest(KEPT_GAPS, gaps, key=lambda gap: gap.end_ns - gap.start_ns)))


def _time_of(gpu: int, work: Iterable[DeviceSpan], launches: Mapping[int, HostSpan], gaps: list[HostGap]) -> WindowGpu:
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
                tid = launch.event.tid
                gaps.append(HostGap(gpu, one_ns, late_ns, abs(tid) & _TID if isinstance(tid, int) else 0))
        both_ns = min(span.end_ns, one_ns)
        overlap_ns += max(both_ns - max(span.start_ns, two_ns), 0)
        one_ns, two_ns = max(one_ns, span.end_ns), max(two_ns, both_ns)
    busy_ns = one_ns - ordered[0].start_ns - idle_ns
    return WindowGpu(gpu, busy_ns, idle_ns, overlap_ns, host_ns)
