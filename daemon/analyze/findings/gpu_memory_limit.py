"""Rule: the memory of a GPU is nearly used up."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case
from profd.daemon.analyze.findings.devices import used_devices
from profd.daemon.analyze.findings.finding import INFO, WARNING, Finding, Measure
from profd.daemon.units import percent, size

_USED, _TOTAL = "gpu_memory_used_bytes", "gpu_memory_total_bytes"
# Torch keeps what it was given once: a GPU that is well used is nearly full, and stays so.
_WELL_USED, _FULL = 0.92, 0.98


def find(case: Case) -> Finding | None:
    """Return the finding for the first GPU of the training that was seen to be nearly full."""
    for device in used_devices(case):
        used, total = case.most(_USED, device=device), case.values(_TOTAL, device=device)
        if used and total and used >= _WELL_USED * total[-1]:
            return _finding(case, device, used / total[-1], total[-1])
    return None


def _finding(case: Case, device: str, part: float, total_bytes: float) -> Finding:
    return Finding(
        rule="gpu-memory-limit",
        severity=WARNING if part >= _FULL else INFO,
        label="GPU memory nearly full",
        title=f"GPU memory nearly full: {percent(part)} of the {size(total_bytes)} of {device} were in use",
        cause="A batch that is a little larger than the others ends the training, and while memory is short torch "
        "gives back what it keeps, for which the GPU has to stand still.",
        remedy="Use smaller batches with several of them a step of the optimizer, activation checkpointing, or lower "
        "precision; PYTORCH_ALLOC_CONF=expandable_segments:True where memory is in pieces.",
        gain_bound=None,
        evidence=case.evidence(Measure("GPU memory in use", part), series=(_USED, _TOTAL)),
        page="gpu-memory-limit",
    )
