"""Finds where steps end in a trace: at the profiler's own marks, else where the optimizer was done."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from profd.daemon.store.records import WindowStep
from profd.daemon.windows.spans import Spans

_MARKED = "ProfilerStep#"
_OPTIMIZER = "Optimizer.step#"


def find_steps(spans: Spans, begun_ns: int | None) -> tuple[WindowStep, ...]:
    """Return the whole steps in a trace, in order of time; none where nothing marks them.

    ``begun_ns`` is the start of the trace where it began with a step, None where it began anywhere.
    """
    marked = sorted(WindowStep(span.start_ns, span.end_ns) for span in spans.host if span.name.startswith(_MARKED))
    if marked:
        return tuple(marked)
    ends = _updates(spans)
    if begun_ns is not None:
        ends = [begun_ns, *ends]
    return tuple(WindowStep(start, end) for start, end in pairwise(ends))


def _updates(spans: Spans) -> list[int]:
    """Return when the optimizer was done, each time: the one that updates most often where there are several."""
    updates: defaultdict[str, list[int]] = defaultdict(list)
    for span in spans.host:
        if span.name.startswith(_OPTIMIZER):
            updates[span.name].append(span.end_ns)
    busiest: list[int] = max(updates.values(), key=len, default=[])
    return sorted(busiest)
