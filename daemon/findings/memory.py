"""Rules on memory: growth, limits, swapping, the allocator and the garbage collector.

Collections that Python makes by itself have no frame and no line: their time is that of the line they fell on.
"""

from __future__ import annotations

import re

import msgspec

from profd.daemon.analyze.memory import GPU_SERIES, JUMP_SERIES, growth, tightest
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import total_of_series
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share, share_of_series
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Finding, Measure, speeds_up
from profd.daemon.findings.sharerule import ShareRule
from profd.daemon.naming import process_title
from profd.daemon.store.rows import ProcessRow
from profd.daemon.units import duration, percent, size

_MINOR_FAULTS, _SYSTEM, _USER = "minor_faults_per_s", "cpu_system_cores", "cpu_user_cores"
_MANY_MINOR_FAULTS = 20_000.0
# A fault takes a microsecond, in a virtual machine two: where the kernel is busy for longer, it is with something else.
_LONGEST_S = 5e-6
# What a fault may take outside of the kernel besides: caches that it has displaced are filled again.
_BESIDES_S = 0.2e-6
_PAGE_BYTES = 4096


def allocator_churn(context: FindingContext) -> Finding | None:
    for row in context.trainers:
        faults, share = context.mean(_MINOR_FAULTS, row.id), _kernel_share(context, row)
        if share is None or faults is None or faults < _MANY_MINOR_FAULTS:
            continue
        severity = context.severity(share.low)
        if severity is None or (context.mean(_SYSTEM, row.id) or 0.0) > faults * _LONGEST_S:
            continue
        gain = bound(context, msgspec.structs.replace(share, high=min(share.high + faults * _BESIDES_S, 1.0)))
        return context.finding(
            share.measure("in the kernel"),
            Measure("page faults", faults, "/s"),
            rule="allocator-churn",
            severity=severity,
            label="memory churn",
            title=f"{size(faults * _PAGE_BYTES)} of memory a second are taken from the kernel anew, for "
            f"{percent(share.value)} of the time: keeping it {speeds_up(gain)}",
            cause="Large tensors are given back to the kernel when they are freed. The next ones get other pages, "
            "and the kernel clears and maps each of them at its first write.",
            remedy="Set MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ to 4294967296 in the environment, so that "
            "the process keeps what it frees (or preload jemalloc); reuse tensors in the loop (out=, operations in "
            "place).",
            gain=gain,
            series=(_MINOR_FAULTS, _SYSTEM),
        )
    return None


def _kernel_share(context: FindingContext, row: ProcessRow) -> Share | None:
    """Return the kernel's part of the time in which the training works; the threads of a process share both alike."""
    readings = zip(context.values(_SYSTEM, row.id), context.values(_USER, row.id), strict=False)
    kernel = share_of_series([system / (system + user) for system, user in readings if system + user])
    return kernel.times(1 - context.share(*WITHOUT_WORK).value) if kernel else None


_CALL = re.compile(r"\bgc\.collect\(")
_COLLECTION = ShareRule(
    rule="garbage-collection",
    label="garbage collection",
    measure="gc.collect()",
    title="gc.collect() takes {share} of the time{at}: leaving it out {speeds_up}",
    cause="Each call goes through all objects that the process has, whether there is garbage among them or not.",
    remedy="Leave out the call{at}: tensors are freed with their last reference. Where cycles have to go, call it once "
    "an epoch, after gc.freeze() has set aside what was there at the start.",
)


def garbage_collection(context: FindingContext) -> Finding | None:
    def collects(stack: int) -> bool:
        return bool(_CALL.search(context.leaf(stack).source or ""))

    share = context.share_of(context.profile, collects)
    return _COLLECTION.of(context, share, line_of=lambda: context.heaviest_line(context.profile, collects))


# Sooner than this, there is hardly time to see to it.
_SOON_S = 3600.0


def memory_growth(context: FindingContext) -> Finding | None:
    """Return the growth that fills its memory first, judged from the start of the run: a short look shows none."""
    so_far = Selection(to_ns=context.whole.to_ns, processes=context.whole.processes, rank=context.whole.rank)
    growing = [one for one in growth(context.reader, so_far) if one.verdict == "growing" and one.series in JUMP_SERIES]
    if not growing:
        return None
    worst = min(growing, key=lambda one: (one.time_to_limit_s or float("inf"), -(one.slope_bytes_per_s or 0.0)))
    left_s, slope = worst.time_to_limit_s, worst.slope_bytes_per_s or 0.0
    row = context.reader.processes[worst.process]
    where = f" on {worst.device}" if worst.series == GPU_SERIES else ""
    step = f", {size(worst.bytes_per_step)} a step" if worst.bytes_per_step else ""
    full = f": full in {duration(left_s)}" if left_s is not None else ""
    low, high = worst.interval_bytes_per_s or (None, None)
    return context.finding(
        Measure(worst.series, slope, "bytes/s", low, high),
        rule="memory-growth",
        severity=CRITICAL if left_s is not None and left_s < _SOON_S else WARNING,
        label="memory grows",
        title=f"{process_title(row.role, row.ordinal)} {row.pid} takes {size(slope)} more a second{where}{step}{full}",
        cause="Something is kept that was to be given back: losses with their graphs, batches in a list, a cache "
        "without a limit.",
        remedy="Keep numbers instead of tensors (loss.item(), loss.detach()), and empty what collects over the steps.",
        since_ns=max(worst.since_ns or context.from_ns, context.reader.info.started_ns),
        series=(worst.series,),
    )


_NEARLY_FULL, _MEMORY_FULL = 0.92, 0.97


def memory_limit(context: FindingContext) -> Finding | None:
    for row in context.trainers:
        series = context.reader.find_series("rss_bytes", row.id)
        limit = tightest(context.reader, series, context.selection) if series else None
        if limit is None or not limit.limit_bytes or limit.used_bytes < _NEARLY_FULL * limit.limit_bytes:
            continue
        used = limit.used_bytes / limit.limit_bytes
        name = "the machine" if limit.kind == "host" else "its control group"
        return context.finding(
            Measure("memory in use", used),
            rule="memory-limit",
            severity=CRITICAL if used >= _MEMORY_FULL else WARNING,
            label="memory nearly full",
            title=f"{percent(used)} of the {size(limit.limit_bytes)} of {name} are in use",
            cause="The kernel ends processes of the training when the rest is used up.",
            remedy="Use fewer workers or a smaller prefetch_factor, map files instead of reading them; "
            "or give it more.",
            series=("rss_bytes",),
        )
    return None


_MAJOR_FAULTS, _SWAPPED = "major_faults_per_s", "swap_bytes"
_MANY_MAJOR_FAULTS = 20.0


def swapping(context: FindingContext) -> Finding | None:
    for row in context.trainers:
        faults, swapped = context.mean(_MAJOR_FAULTS, row.id), context.mean(_SWAPPED, row.id)
        if faults is not None and swapped and faults >= _MANY_MAJOR_FAULTS:
            return context.finding(
                Measure("pages from disk", faults, "/s"),
                Measure("in swap", swapped, "bytes"),
                rule="swapping",
                severity=CRITICAL,
                label="swapping",
                title=f"main {row.pid} has {size(swapped)} on disk and waits for {faults:.0f} pages a second",
                cause="There is less memory than is in use, so parts of it are written to disk and read again.",
                remedy="Use less memory: fewer workers, a smaller prefetch_factor, memory-mapped data; "
                "or give it more.",
                series=(_MAJOR_FAULTS, _SWAPPED),
            )
    return None


_USED, _TOTAL = "gpu_memory_used_bytes", "gpu_memory_total_bytes"
# Torch keeps what it was given once: a GPU that is well used is nearly full, and stays so.
_WELL_USED, _GPU_MEMORY_FULL = 0.92, 0.98


def gpu_memory_limit(context: FindingContext) -> Finding | None:
    for device in context.devices:
        most = total_of_series(context.reader, _USED, None, context.selection, device).most
        total = context.values(_TOTAL, device=device)
        if most <= 0 or not total or most < _WELL_USED * total[-1]:
            continue
        part = most / total[-1]
        return context.finding(
            Measure("GPU memory in use", part),
            rule="gpu-memory-limit",
            severity=WARNING if part >= _GPU_MEMORY_FULL else INFO,
            label="GPU memory nearly full",
            title=f"{percent(part)} of the {size(total[-1])} of {device} were in use",
            cause="A batch that is a little larger than the others ends the training, and while memory is short torch "
            "gives back what it keeps, for which the GPU has to stand still.",
            remedy="Use smaller batches with several of them a step of the optimizer, activation checkpointing, or "
            "lower precision; PYTORCH_ALLOC_CONF=expandable_segments:True where memory is in pieces.",
            series=(_USED, _TOTAL),
        )
    return None
