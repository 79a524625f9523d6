"""Rules on GPUs: unused, throttled, bound by copies, precision and memory format."""

from __future__ import annotations

import itertools
import re

from profd.daemon.analyze.operators import HOST
from profd.daemon.analyze.phases import COPY, FORWARD
from profd.daemon.analyze.torchtraces import selected_windows
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share, share_of_series
from profd.daemon.findings.finding import CRITICAL, PRICE, WARNING, Finding, Measure, at, speeds_up
from profd.daemon.findings.sharerule import ShareRule
from profd.daemon.units import percent, plural, size


def gpu_unused(context: FindingContext) -> Finding | None:
    devices = context.reader.devices()
    if not devices or not context.is_training or context.devices:
        return None
    line = context.line(FORWARD)
    return context.finding(
        Measure("GPUs", len(devices), "devices"),
        rule="gpu-unused",
        severity=CRITICAL,
        label="GPU unused",
        title=f"the training runs on the CPU{at(line)} beside {plural(len(devices), devices[0].model)}",
        cause="Neither the model nor its inputs were moved to a GPU.",
        remedy=f'Move the model by .to("cuda") before the optimizer is made, and each batch in the loop{at(line)}.',
        line=line,
    )


_SERIES = "gpu_throttled_share"
_HELD_BACK = 0.2


def gpu_held_back(context: FindingContext) -> Finding | None:
    for device in context.devices:
        share = share_of_series(context.values(_SERIES, device=device), context.mean(_SERIES, device=device))
        if share is not None and share.low >= _HELD_BACK:
            return context.finding(
                share.measure("clocks held down"),
                rule="gpu-held-back",
                severity=WARNING,
                label="GPU held back",
                title=f"power or heat kept the clocks of {device} down {percent(share.value)} of the time",
                cause="The GPU draws as much power as it may, or gets as hot as it may, and lowers its clocks.",
                remedy="See gpu_throttle_reasons_mask for which; look after cooling, or raise the power limit "
                "(nvidia-smi -pl). A GPU that is well used may draw all its power: then nothing is amiss.",
                series=(_SERIES,),
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
        severity = context.severity(min(share.low, 1 - busy)) if share and share.low >= _FULL else None
        if share is None or severity is None:
            continue
        line, gain = context.line(COPY), bound(context, share, 1 / busy if busy else None)
        lanes = max(context.values(_LANES, device=device))
        carried = size(context.mean(series, device=device) or 0.0)
        return context.finding(
            share.measure("of the link"),
            Measure("GPU busy", busy),
            rule="pcie-bound",
            severity=severity,
            label="PCIe-bound",
            title=f"{carried} a second go {_DIRECTIONS[series]} {device}, {percent(share.value)} of what its link of "
            f"{lanes:.0f} lanes carries, and it is busy {percent(busy)}: avoiding copies {speeds_up(gain)}",
            cause="The link between the machine and the GPU carries as much as it can, and steps wait for what it "
            "brings.",
            remedy=f"Send less{at(line)}: bytes instead of floats, converted on the GPU; keep on the GPU what comes "
            "again (data, optimizer state, activations). See whether the link has all its lanes: nvidia-smi -q -d "
            "PCIE.",
            gain=gain,
            line=line,
            series=(series, _GENERATION, _LANES),
        )
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


_COPIES = ShareRule(
    rule="host-to-device-copies",
    label="copies",
    phase=COPY,
    title="copying to the GPU takes {share} of the time{at}: copying while it computes {speeds_up}",
    cause="Memory that is not pinned is copied in steps, and the main thread waits until the copy has been made.",
    remedy="Set pin_memory=True in the DataLoader and copy with .to(device, non_blocking=True){at}; send bytes instead "
    "of floats, and convert them on the GPU.",
)


def copies(context: FindingContext) -> Finding | None:
    return _COPIES(context, context.utilization)


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
    return Share(value, value, value, sum(row.calls for row in found))


# cuDNN's own, which it puts before and after a convolution on tensor cores.
_TURNING = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw", re.I)


_FORMAT = ShareRule(
    rule="memory-format",
    label="memory format",
    phase=FORWARD,
    measure="reordering",
    title="turning images around for convolutions takes {share} of the time: putting channels last {speeds_up}",
    cause="Convolutions on tensor cores want the channels of a pixel side by side. Images and weights have them in "
    "planes, so that cuDNN reorders them before each convolution, and its result after it.",
    remedy="Move the model by .to(memory_format=torch.channels_last), and each batch of images likewise{at}; "
    "operations in between that return planes undo it.",
    series=("gpu_utilization_share",),
    is_sampled=False,
)


def memory_format(context: FindingContext) -> Finding | None:
    share = _share_of_kernels(context, _TURNING)
    return _FORMAT.of(context, share, limit=share.gain) if share else None


# Volta, Turing, Ampere, Ada, Hopper, Blackwell.
_TENSOR_CORES = re.compile(
    r"\b(TITAN (V|RTX)|RTX|V100\w*|T4|A\d{1,3}[A-Z]?|L\d{1,2}[A-Z]?|[HB]\d{2,3}|G[HB]\d{3})\b", re.I
)
# What cuBLAS, cuDNN and CUTLASS call kernels that multiply in float32 without tensor cores.
_FLOAT32 = re.compile(r"sgemm|scudnn|simt|ffma|f32f32_f32f32_f32", re.I)
_NOT_FLOAT32 = re.compile(r"tensorop|tf32|bf16|fp16|f16|half|hmma|dgemm|f64", re.I)


_PRECISION = ShareRule(
    rule="precision",
    label="precision",
    phase=FORWARD,
    measure="float32 products",
    title="products in float32 take {share} of the time beside idle tensor cores: lowering the precision {speeds_up}",
    cause="Matrix products and convolutions compute in float32, which tensor cores do not do: they multiply TF32, "
    "bfloat16 and float16, several times as fast.",
    remedy='Compute forward and loss{at} within torch.autocast("cuda", dtype=torch.bfloat16), or let float32 be '
    'rounded for products: torch.set_float32_matmul_precision("high") and torch.backends.cudnn.allow_tf32 = True '
    "(from Ampere on). See whether the model trains as well.",
    scale=PRICE,
    series=("gpu_utilization_share",),
    is_sampled=False,
)


def precision(context: FindingContext) -> Finding | None:
    used = context.devices
    models = [row.model for row in context.reader.devices() if not used or row.name in used]
    has_tensor_cores = bool(models) and all(_TENSOR_CORES.search(model) for model in models)
    share = _share_of_kernels(context, _FLOAT32, but=_NOT_FLOAT32) if has_tensor_cores else None
    return _PRECISION.of(context, share, limit=share.gain) if share else None
