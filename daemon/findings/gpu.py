"""Rules on GPUs: unused, throttled, bound by copies, precision and memory format."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial

from profd.daemon.analyze.phases import COPY, FORWARD
from profd.daemon.analyze.torchtraces import selected_windows
from profd.daemon.analyze.windows import HOST
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share, share_of_series
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Finding, Measure
from profd.daemon.findings.phases import of_phase
from profd.daemon.units import percent, plural, size


def gpu_unused(context: FindingContext) -> Finding | None:
    devices = context.reader.devices()
    if not context.is_training or context.uses_gpu is not False or not devices:
        return None
    gpus = plural(len(devices), devices[0].model)
    first = Measure("GPUs", len(devices), "devices")
    return context.finding("gpu-unused", first, severity=CRITICAL, line=lambda: context.line(FORWARD), gpus=gpus)


_REASONS, _CLOCK = "gpu_throttle_reasons_mask", "gpu_sm_clock_hz"
_POWER_CAP = 0x4
_HARD_REASONS = 0x8 | 0x20 | 0x40 | 0x80  # hardware slowdown, heat (driver, hardware), power brake
_HELD_BACK = 0.2
_SLOWER = 0.05


def gpu_held_back(context: FindingContext) -> Finding | None:
    """Return the finding where heat or hardware slows a GPU; as a remark where a busy one draws all its power."""
    for device in context.devices:
        masks, clocks = (context.values(name, device=device) for name in (_REASONS, _CLOCK))
        slower = 1 - (context.mean(_CLOCK, device=device) or 0.0) / max(clocks, default=math.inf)
        for mask, severity in ((_HARD_REASONS, WARNING), (_POWER_CAP, INFO)):
            share = share_of_series([float(bool(int(value) & mask)) for value in masks])
            is_capped = mask == _POWER_CAP
            if share is None or share.low < _HELD_BACK or (is_capped and not _SLOWER <= slower < 1):
                continue
            return context.finding(
                "gpu-held-back",
                share,
                severity=severity,
                cases={"capped": is_capped},
                device=device,
                slower=percent(slower),
            )
    return None


_DIRECTIONS = {"gpu_pcie_received_bytes_per_s": "to", "gpu_pcie_sent_bytes_per_s": "from"}
_GENERATION, _LANES = "gpu_pcie_generation", "gpu_pcie_lanes"
# Bytes a second of a lane by generation, less what its encoding takes.
_LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
# The headers of packets take the rest: copies from pinned memory reach this much of it, and no more.
_REACHED = 0.85
_FULL = 0.5


def pcie_bound(context: FindingContext) -> Finding | None:
    busy = context.utilization
    if busy is None:
        return None
    for device, series in itertools.product(context.devices, _DIRECTIONS):
        share = _share_of_link(context, series, device)
        if share is None or share.low < _FULL:
            continue
        found = context.finding(
            "pcie-bound",
            share,
            Measure("GPU busy", busy),
            gain=partial(bound, context, share),
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
    """Return the share of its capacity that a link carries, which is that of the time for which it has to work.

    An idle link is put into a lower generation: the highest one that was read counts.
    """
    generations, lanes = context.values(_GENERATION, device=device), context.values(_LANES, device=device)
    lane = _LANE_BYTES_PER_S.get(round(max(generations, default=0)), 0.0)
    capacity = lane * max(lanes, default=0) * _REACHED
    values = context.values(series, device=device)
    return share_of_series([min(value / capacity, 1.0) for value in values]) if capacity else None


def copies(context: FindingContext) -> Finding | None:
    return of_phase("host-to-device-copies", context)


def _share_of_kernels(
    context: FindingContext, kind: re.Pattern[str], but: re.Pattern[str] | None = None
) -> Share | None:
    """Return the share of a kind of kernel by the last window in the time looked at, over its processes.

    None without a window with kernels. The kernels of a few steps stand for those of the training, but not how long the
    GPU pauses between them: the window itself slows the main thread down. So what a kind of kernel has of the time is
    its part of all kernels' time, as far as the GPUs are busy in the training.
    """
    taken = list(selected_windows(context.reader, context.selection))
    rows = [
        operator
        for row in taken
        if row.asked_ns == taken[-1].asked_ns
        for operator in context.reader.operators(row.id)
        if operator.device != HOST and not operator.is_annotation
    ]
    if not rows:
        return None
    whole_ns, busy = sum(row.self_cuda_ns for row in rows), context.utilization
    busy = 1.0 if busy is None else busy
    found = [row for row in rows if kind.search(row.name) and not (but and but.search(row.name))]
    value = busy * sum(row.self_cuda_ns for row in found) / whole_ns if whole_ns else 0.0
    return Share(value, value, value)


def _gain_of(context: FindingContext, share: Share) -> float | None:
    return bound(context, share, share.gain, beside_gpu=False)


# cuDNN's own, which it puts before and after a convolution on tensor cores.
_TURNING = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw", re.I)


def memory_format(context: FindingContext) -> Finding | None:
    share = _share_of_kernels(context, _TURNING)
    return context.finding("memory-format", share, beside_gpu=False, gain=_gain_of(context, share)) if share else None


# Volta, Turing, Ampere, Ada, Hopper, Blackwell.
_TENSOR_CORES = re.compile(
    r"\b(TITAN (V|RTX)|RTX|V100\w*|T4|A\d{1,3}[A-Z]?|L\d{1,2}[A-Z]?|[HB]\d{2,3}|G[HB]\d{3})\b", re.I
)
# What cuBLAS, cuDNN and CUTLASS call kernels that multiply in float32 without tensor cores.
_FLOAT32 = re.compile(r"sgemm|scudnn|simt|ffma|f32f32_f32f32_f32", re.I)
_NOT_FLOAT32 = re.compile(r"tensorop|tf32|bf16|fp16|f16|half|hmma|dgemm|f64", re.I)


def precision(context: FindingContext) -> Finding | None:
    used = context.devices
    models = [row.model for row in context.reader.devices() if not used or row.name in used]
    has_tensor_cores = bool(models) and all(_TENSOR_CORES.search(model) for model in models)
    share = _share_of_kernels(context, _FLOAT32, but=_NOT_FLOAT32) if has_tensor_cores else None
    return context.finding("precision", share, beside_gpu=False, gain=_gain_of(context, share)) if share else None
