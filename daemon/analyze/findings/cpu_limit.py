"""Rule: a control group's limit on CPU time stops the training again and again."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case, share_of_series
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.units import percent

_SERIES = "cgroup_cpu_throttled_share"


def find(case: Case) -> Finding | None:
    """Return the finding where a control group surely took the CPU away."""
    share = share_of_series(case.values(_SERIES), case.mean(_SERIES))
    severity = severity_of(share.low, case.profile.total_samples) if share else None
    if share is None or severity is None:
        return None
    limits = [row for row in case.reader.series.values() if row.name == "cgroup_cpu_limit_cores"]
    known = [point.value for row in limits if (point := case.reader.last_point(row.id))]
    limit = f" of {min(known):g} cores" if known else ""
    return Finding(
        rule="cpu-limit",
        severity=severity,
        label="throttled",
        title=f"throttled: the control group's limit{limit} stopped the training in {percent(share.value)} of its "
        "periods",
        cause="All threads of the group stand still for the rest of a period once they have used up its CPU time.",
        remedy="Raise the limit of the container, or use fewer threads and workers than it has cores: what runs in "
        "turns is slower than what does not start.",
        gain_bound=None,
        evidence=case.evidence(share.measure("periods with a stop"), series=(_SERIES,)),
        page="cpu-limit",
    )
