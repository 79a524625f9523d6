"""Rule: the GPU pauses while its link to the machine carries all that it can."""

from __future__ import annotations

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import Case, Share, share_of_series
from profd.daemon.analyze.findings.devices import used_devices, utilization
from profd.daemon.analyze.findings.finding import Finding, Measure
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import COPY
from profd.daemon.units import percent, size

_DIRECTIONS = {"gpu_pcie_received_bytes_per_s": "to", "gpu_pcie_sent_bytes_per_s": "from"}
_GENERATION, _LANES = "gpu_pcie_generation", "gpu_pcie_lanes"
# Bytes a second of a lane by generation, less what its encoding takes.
_LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
# Of which the headers of packets take a part: copies from pinned memory reach so much of it, and no more.
_REACHED = 0.85
_FULL = 0.5


def find(case: Case) -> Finding | None:
    """Return the finding for the first GPU whose link is surely full for most of the time, while it pauses."""
    busy = utilization(case)
    for device in used_devices(case) if busy is not None else ():
        capacity = _capacity(case, device)
        for series, way in _DIRECTIONS.items():
            share = _share(case, series, device, capacity)
            if busy is None or share is None or share.low < _FULL:
                continue
            severity = severity_of(min(share.low, 1 - busy), case.profile.total_samples)
            if severity is not None:
                return _finding(case, device, f"{way} {device}", share, busy, severity, series)
    return None


def _capacity(case: Case, device: str) -> float | None:
    """Return what the link can carry each way, in bytes a second; an idle link is put into a lower generation."""
    generations, lanes = case.values(_GENERATION, device=device), case.values(_LANES, device=device)
    if not generations or not lanes:
        return None
    lane = _LANE_BYTES_PER_S.get(round(max(generations)))
    return lane * max(lanes) * _REACHED if lane else None


def _share(case: Case, series: str, device: str, capacity: float | None) -> Share | None:
    """Return the share of its capacity that a link carries, which is that of the time for which it has to work."""
    values = case.values(series, device=device)
    return share_of_series([min(value / capacity, 1.0) for value in values]) if capacity else None


def _finding(case: Case, device: str, way: str, share: Share, busy: float, severity: str, series: str) -> Finding:
    line = case.line(COPY)
    gain = bound(case, share, 1 / busy if busy else None)
    lanes = max(case.values(_LANES, device=device))
    carried = case.mean(series, device=device) or 0.0
    return Finding(
        rule="pcie-bound",
        severity=severity,
        label="PCIe-bound",
        title=f"PCIe-bound: {size(carried)} a second go {way}, {percent(share.value)} of what its link of {lanes:.0f} "
        f"lanes carries, and it is busy {percent(busy)}: without copies {at_most(gain)}",
        cause="The link between the machine and the GPU carries as much as it can, and steps wait for what it brings.",
        remedy=f"Send less{at(line)}: bytes instead of floats, converted on the GPU; keep on the GPU what comes again "
        "(data, optimizer state, activations). See whether the link has all its lanes: nvidia-smi -q -d PCIE.",
        gain_bound=gain,
        evidence=case.evidence(
            share.measure("of the link"), Measure("GPU busy", busy), line=line, series=(series, _GENERATION, _LANES)
        ),
        page="pcie-bound",
    )
