"""Rule: a process of the training grows in memory, step by step, and gives nothing back."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import CRITICAL, WARNING, Evidence, Finding, Measure
from profd.daemon.analyze.memory.growth import Growth, growth
from profd.daemon.analyze.memory.headroom import GPU_SERIES
from profd.daemon.analyze.selection import Selection
from profd.daemon.naming import process_title
from profd.daemon.units import duration, size

# Sooner than this, there is hardly time to see to it.
_SOON_S = 3600.0
# What is proportional is resident, too.
_SERIES = ("rss_bytes", GPU_SERIES)


def find(case: Case) -> Finding | None:
    """Return the growth that fills its memory first, judged from the start of the run: a short look shows none."""
    so_far = Selection(to_ns=case.whole.to_ns, processes=case.whole.processes, rank=case.whole.rank)
    growing = [one for one in growth(case.reader, so_far) if one.verdict == "growing" and one.series in _SERIES]
    if not growing:
        return None
    worst = min(growing, key=lambda one: (one.time_to_limit_s or float("inf"), -(one.slope_bytes_per_s or 0.0)))
    return _finding(case, worst)


def _finding(case: Case, worst: Growth) -> Finding:
    left_s, slope = worst.time_to_limit_s, worst.slope_bytes_per_s or 0.0
    row = case.reader.processes[worst.process]
    where = f" on {worst.device}" if worst.series == GPU_SERIES else ""
    step = f", {size(worst.bytes_per_step)} a step" if worst.bytes_per_step else ""
    full = f": full in {duration(left_s)}" if left_s is not None else ""
    low, high = worst.interval_bytes_per_s or (None, None)
    return Finding(
        rule="memory-growth",
        severity=CRITICAL if left_s is not None and left_s < _SOON_S else WARNING,
        label="memory grows",
        title=f"memory grows: {process_title(row.role, row.ordinal)} {row.pid} takes {size(slope)} more a "
        f"second{where}{step}{full}",
        cause="Something is kept that was to be given back: losses with their graphs, batches in a list, a cache "
        "without a limit.",
        remedy="Keep numbers instead of tensors (loss.item(), loss.detach()), and empty what collects over the steps.",
        gain_bound=None,
        evidence=Evidence(
            (Measure(worst.series, slope, "bytes/s", low, high),),
            max(worst.since_ns or case.from_ns, case.reader.info.started_ns),
            case.to_ns,
            case.selection,
            series=(worst.series,),
        ),
        page="memory-growth",
    )
