"""Rule: the memory that the training lives in is nearly used up."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import CRITICAL, WARNING, Finding, Measure
from profd.daemon.analyze.memory.headroom import Limit, tightest
from profd.daemon.units import percent, size

_NEARLY_FULL, _FULL = 0.92, 0.97


def find(case: Case) -> Finding | None:
    """Return the finding for the first training process whose machine or control group is nearly full."""
    for row in case.trainers:
        series = case.reader.find_series("rss_bytes", row.id)
        limit = tightest(case.reader, series, case.selection) if series else None
        if limit is not None and limit.limit_bytes and limit.used_bytes >= _NEARLY_FULL * limit.limit_bytes:
            return _finding(case, limit)
    return None


def _finding(case: Case, limit: Limit) -> Finding:
    used = limit.used_bytes / limit.limit_bytes
    name = "the machine" if limit.kind == "host" else "its control group"
    return Finding(
        rule="memory-limit",
        severity=CRITICAL if used >= _FULL else WARNING,
        label="memory nearly full",
        title=f"memory nearly full: {percent(used)} of the {size(limit.limit_bytes)} of {name} are in use",
        cause="The kernel ends processes of the training when the rest is used up.",
        remedy="Use fewer workers or a smaller prefetch_factor, map files instead of reading them; or give it more.",
        gain_bound=None,
        evidence=case.evidence(Measure("memory in use", used), series=("rss_bytes",)),
        page="memory-limit",
    )
