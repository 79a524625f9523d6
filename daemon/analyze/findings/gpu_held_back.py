"""Rule: power or heat holds the clocks of a GPU down."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Case, Share, share_of_series
from profd.daemon.analyze.findings.devices import used_devices
from profd.daemon.analyze.findings.finding import WARNING, Finding
from profd.daemon.units import percent

_SERIES = "gpu_throttled_share"
_HELD_BACK = 0.2


def find(case: Case) -> Finding | None:
    """Return the finding for the first GPU of the training whose clocks were surely held down."""
    for device in used_devices(case):
        share = share_of_series(case.values(_SERIES, device=device), case.mean(_SERIES, device=device))
        if share is not None and share.low >= _HELD_BACK:
            return _finding(case, device, share)
    return None


def _finding(case: Case, device: str, share: Share) -> Finding:
    return Finding(
        rule="gpu-held-back",
        severity=WARNING,
        label="GPU held back",
        title=f"GPU held back: power or heat kept the clocks of {device} down {percent(share.value)} of the time",
        cause="The GPU draws as much power as it may, or gets as hot as it may, and lowers its clocks.",
        remedy="See gpu_throttle_reasons_mask for which; look after cooling, or raise the power limit (nvidia-smi "
        "-pl). A GPU that is well used may draw all its power: then nothing is amiss.",
        gain_bound=None,
        evidence=case.evidence(share.measure("clocks held down"), series=(_SERIES,)),
        page="gpu-held-back",
    )
