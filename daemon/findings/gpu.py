"""Rules on GPUs: unused, throttled, bound by copies, precision and memory format."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial

from profd.daemon.analyze.gpu import idle_bounds
from profd.daemon.analyze.idletime import IdleShare
from profd.daemon.analyze.phases import COPY, FORWARD
from profd.daemon.analyze.ranks import SM_ACTIVE, SM_CLOCK
from profd.daemon.events import EventKind
from profd.daemon.findings.context import WORKED, FindingContext
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Finding, Measure
from profd.daemon.findings.phases import of_phase
from profd.daemon.findings.rule import hidden_if
from profd.daemon.findings.shares import Share, share_of_series
from profd.daemon.findings.traces import of_kernels
from profd.daemon.slowdowns import Slowdown
from profd.daemon.store.stepfunction import UTILIZATION
from profd.daemon.units import percent, plural, size


def gpu_unused(context: FindingContext) -> Finding | None:
    devices = context.reader.devices()
    if not context.is_training or context.uses_gpu is not False or not devices:
        return _one_unused(context)
    gpus = plural(len(devices), devices[0].model)
    first = Measure("GPUs", len(devices), "devices")
    return context.finding(
        "gpu-unused", first, severity=CRITICAL, line=lambda: context.line(FORWARD), gpus=gpus
    )


def _one_unused(context: FindingContext) -> Finding | None:
    busy = {device: context.mean(UTILIZATION, device=device) for device in context.devices}
    works = max((one for one in busy.values() if one is not None), default=0.0)
    for device, share in busy.items():
        if context.is_training and share is not None and share < WORKED and works >= _WORKS:
            return context.finding(
                "gpu-one-unused",
                Measure("GPU busy", share),
                severity=WARNING,
                device=device,
                works=percent(works),
            )
    return None


def _is_cause(idle: Finding, other: Finding) -> bool:
    """Say whether another finding is known to cost half of the time in which GPUs idle."""
    costs = other.gain_bound is not None and other.severity != INFO
    return costs and other.measured >= idle.measured / 2


@hidden_if(_is_cause)
def gpu_idle(context: FindingContext) -> Finding | None:
    """Return the finding if GPUs idle for long, and the phase that surely has most of the time."""
    busy = context.utilization
    if busy is None or context.severity("gpu-idle", 1 - busy) is None:
        return None
    shares = idle_bounds(context.reader, context.selection, context.phases)
    phase = max(shares, key=lambda one: shares[one].low, default="")
    found = shares.get(phase, IdleShare(0.0, 1.0))
    return context.finding(
        "gpu-idle",
        1 - busy,
        line=partial(context.line, phase),
        cases={"untold": found.low < 0.2},
        selection=context.in_phase(phase or None),
        phase=phase,
        least=percent(found.low),
    )


_WORKS = 0.1
_ERROR = re.compile(r"(\S+): (Xid (?:48|63|79|94|95)\b.*|a memory error .*)")


def gpu_error(context: FindingContext) -> Finding | None:
    """Return the finding if the driver reported a grave error.

    After such an error a device computes wrongly, or not at all.
    """
    events = (
        one for one in context.reader.events(EventKind.GPU) if context.whole.time.holds(one.at_ns)
    )
    errors = [found for event in events if (found := _ERROR.match(event.text))]
    if not errors:
        return None
    first, (device, error) = Measure("errors", len(errors), ""), errors[0].groups()
    return context.finding("gpu-error", first, severity=CRITICAL, device=device, error=error)


def pcie_link(context: FindingContext) -> Finding | None:
    """Return the finding if a working GPU's link is narrower or slower than it can be."""
    for device in context.devices:
        links = (_GENERATION, f"{_GENERATION}_most", _LANES, f"{_LANES}_most")
        now, most, lanes, all_lanes = (
            max(context.values(name, device=device), default=0.0) for name in links
        )
        works = (context.mean(UTILIZATION, device=device) or 0.0) >= _WORKS
        if works and now and lanes and (now < most or lanes < all_lanes):
            first = Measure("lanes", lanes, "")
            return context.finding(
                "pcie-link",
                first,
                severity=INFO,
                device=device,
                now=now,
                most=most,
                lanes=lanes,
                all_lanes=all_lanes,
            )
    return None


_TENSOR_ACTIVE = "gpu_tensor_active_share"


def underfilled(context: FindingContext) -> Finding | None:
    """Return the remark if a GPU is always busy, but on few multiprocessors: with small kernels."""
    for device in context.devices:
        share = context.mean_share(SM_ACTIVE, device)
        busy = context.mean(UTILIZATION, device=device)
        if share is not None and busy is not None and busy >= 0.8 and share.high < 0.25:
            return context.finding(
                "gpu-underfilled", share, severity=INFO, device=device, busy=percent(busy)
            )
    return None


def tensor_cores_idle(context: FindingContext) -> Finding | None:
    for device in context.devices:
        share = context.mean_share(_TENSOR_ACTIVE, device)
        active = context.mean(SM_ACTIVE, device=device)
        if share is not None and share.high < WORKED and (active or 0.0) >= 0.4:
            return context.finding(
                "tensor-cores-idle", share, severity=INFO, device=device, active=percent(active)
            )
    return None


_REASONS = "gpu_throttle_reasons_mask"
_HEAT, _CAPPED = "gpu_heat_slowed_share", "gpu_power_capped_share"
_HARD_REASONS = (
    Slowdown.HARDWARE | Slowdown.HEAT_BY_DRIVER | Slowdown.HEAT_BY_HARDWARE | Slowdown.POWER_BRAKE
)


def gpu_held_back(context: FindingContext) -> Finding | None:
    """Return the finding if heat or hardware slows a GPU; a remark if it draws all its power."""
    for device in context.devices:
        masks, clocks = (context.values(name, device=device) for name in (_REASONS, SM_CLOCK))
        slower = 1 - (context.mean(SM_CLOCK, device=device) or 0.0) / max(clocks, default=math.inf)
        for mask, severity, counted in (
            (_HARD_REASONS, WARNING, _HEAT),
            (Slowdown.POWER_CAP, INFO, _CAPPED),
        ):
            flags = share_of_series([float(bool(int(value) & mask)) for value in masks])
            counts = share_of_series(context.values(counted, device=device))
            share = max(filter(None, (flags, counts)), key=lambda one: one.low, default=None)
            cases = {"capped": mask == Slowdown.POWER_CAP}
            if share is None or share.low < 0.2 or (cases["capped"] and not 0.05 <= slower < 1):
                continue
            return context.finding(
                "gpu-held-back",
                share,
                severity=severity,
                cases=cases,
                device=device,
                slower=percent(slower),
            )
    return None


_DIRECTIONS = {"gpu_pcie_received_bytes_per_s": "to", "gpu_pcie_sent_bytes_per_s": "from"}
_GENERATION, _LANES = "gpu_pcie_generation", "gpu_pcie_lanes"
# Bytes a second of a lane by generation, less what its encoding takes.
_LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
# Packet headers take the rest: copies from pinned memory reach this part of it, and no more.
_REACHED = 0.85


def pcie_bound(context: FindingContext) -> Finding | None:
    busy = context.utilization
    if busy is None:
        return None
    for device, series in itertools.product(context.devices, _DIRECTIONS):
        share = _share_of_link(context, series, device)
        if share is None or share.low < 0.5:
            continue
        found = context.finding(
            "pcie-bound",
            share,
            Measure("GPU busy", busy),
            line=lambda: context.line(COPY),
            series=(series, _GENERATION, _LANES),
            carried=size(context.mean(series, device=device) or 0.0),
            direction=_DIRECTIONS[series],
            device=device,
            lanes=max(context.values(_LANES, device=device)),
            busy=percent(busy),
        )
        if found is not None:
            return found
    return None


def _share_of_link(context: FindingContext, series: str, device: str) -> Share | None:
    """Return the share of its capacity that a link carries: of the time in which it has to work.

    An idle link is put into a lower generation: the highest one that was read counts.
    """
    generations = context.values(_GENERATION, device=device)
    lanes = context.values(_LANES, device=device)
    lane = _LANE_BYTES_PER_S.get(round(max(generations, default=0)), 0.0)
    capacity = lane * max(lanes, default=0) * _REACHED
    values = context.values(series, device=device)
    return share_of_series([min(value / capacity, 1.0) for value in values]) if capacity else None


def copies(context: FindingContext) -> Finding | None:
    return of_phase("host-to-device-copies", context) or of_kernels("pageable-copies", context)


memory_format = partial(of_kernels, "memory-format")
elementwise = partial(of_kernels, "elementwise-kernels")


# Volta, Turing, Ampere, Ada, Hopper, Blackwell.
_TENSOR_CORES = re.compile(
    r"\b(TITAN (V|RTX)|RTX|V100\w*|T4|A\d{1,3}[A-Z]?|L\d{1,2}[A-Z]?|[HB]\d{2,3}|G[HB]\d{3})\b", re.I
)
# Volta and Turing, whose tensor cores multiply float16 alone.
_WITHOUT_BFLOAT16 = re.compile(r"\b(TITAN (V|RTX)|V100\w*|T4|RTX 20\d\d|Quadro RTX)\b", re.I)


def precision(context: FindingContext) -> Finding | None:
    used = context.devices
    models = [row.model for row in context.reader.devices() if not used or row.name in used]
    has_tensor_cores = bool(models) and all(_TENSOR_CORES.search(model) for model in models)
    has_bfloat16 = not any(_WITHOUT_BFLOAT16.search(model) for model in models)
    return (
        of_kernels("precision", context, cases={"older": not has_bfloat16})
        if has_tensor_cores
        else None
    )
