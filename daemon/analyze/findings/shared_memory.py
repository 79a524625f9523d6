"""Rule: the shared memory in which workers hand over their batches is nearly full."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.finding import CRITICAL, WARNING, Finding, Measure
from profd.daemon.units import percent, size

_USED, _TOTAL = "shm_used_bytes", "shm_total_bytes"
_NEARLY_FULL, _FULL = 0.8, 0.95


def find(case: Case) -> Finding | None:
    """Return the finding where a training with workers was seen to have filled /dev/shm nearly."""
    used, total = case.values(_USED), case.values(_TOTAL)
    if not case.workers or not used or not total or max(used) < _NEARLY_FULL * total[-1]:
        return None
    part = max(used) / total[-1]
    return Finding(
        rule="shared-memory",
        severity=CRITICAL if part >= _FULL else WARNING,
        label="shared memory nearly full",
        title=f"shared memory nearly full: {percent(part)} of the {size(total[-1])} of /dev/shm were in use",
        cause="Workers leave their batches in /dev/shm. A worker that finds no room there is ended by a bus error.",
        remedy="Give it more (docker run --shm-size=8g, an emptyDir of medium Memory in Kubernetes), or use fewer "
        "workers, a smaller prefetch_factor, smaller types.",
        gain_bound=None,
        evidence=case.evidence(Measure("of /dev/shm in use", part), series=(_USED, _TOTAL)),
        page="shared-memory",
    )
