"""Builds the tree of calls of each thread from spans of time, exactly as torch's ``EventList`` does.

Who lies within whom on the same thread was called by it. A call that calls nothing but its own namesake counts once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from profd.daemon.windows.spans import FRONTEND, DeviceSpan, HostSpan, Spans, Thread


def nest(spans: Spans) -> list[HostSpan]:
    """Return the host's spans in order of time, each with its parent, children and kernels.

    Without those that were folded into a parent of the same name.
    """
    _attach_kernels(spans.host, spans.device)
    ordered = sorted(spans.host, key=lambda span: (span.start_ns, -span.end_ns))
    _find_parents(ordered)
    calls = _fold_namesakes(ordered)
    for span in reversed(calls):  # children come after their parents
        span.device_ns = span.kernels_ns + sum(child.device_ns for child in span.children)
    return calls


def _attach_kernels(host: Iterable[HostSpan], device: Iterable[DeviceSpan]) -> None:
    launched: defaultdict[int, int] = defaultdict(int)
    for work in device:
        launched[work.linked] += work.end_ns - work.start_ns
    for span in host:
        if span.id and span.category in FRONTEND:
            span.kernels_ns = launched.get(span.id, 0)


def _find_parents(ordered: Iterable[HostSpan]) -> None:
    """Give each span the innermost one on its thread that it lies within; one that overlaps another has none."""
    open_spans: defaultdict[Thread, list[HostSpan]] = defaultdict(list)
    for span in ordered:
        stack = open_spans[span.thread]
        while stack and (span.start_ns >= stack[-1].end_ns or span.end_ns > stack[-1].end_ns):
            stack.pop()
        if stack:
            span.parent = stack[-1]
            stack[-1].children.append(span)
        stack.append(span)


def _fold_namesakes(ordered: Iterable[HostSpan]) -> list[HostSpan]:
    kept = []
    for span in ordered:
        parent = span.parent
        if parent is None or parent.name != span.name or len(parent.children) != 1:
            kept.append(span)
            continue
        parent.children = span.children
        parent.kernels_ns = span.kernels_ns
        for child in span.children:
            child.parent = parent
    return kept
