"""Rules on memory: growth, limits, swapping, the allocator and the garbage collector.

Collections that Python makes by itself have no frame and no line: their time is that of the line they fell on.
"""

from __future__ import annotations

import re

import msgspec

from profd.daemon.analyze.memory import GPU_SERIES, Growth, Limit, growth, tightest
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext, Share, share_of_series, used_devices
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Evidence, Finding, Measure, at, at_most, severity_of
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


def allocator_churn(case: FindingContext) -> Finding | None:
    """Return the finding for the first training process in which faults surely take their part of the time."""
    for row in case.trainers:
        faults, share = case.mean(_MINOR_FAULTS, row.id), _share(case, row)
        if share is None or faults is None or faults < _MANY_MINOR_FAULTS:
            continue
        severity = severity_of(share.low, case.profile.total_samples)
        if severity is not None and (case.mean(_SYSTEM, row.id) or 0.0) <= faults * _LONGEST_S:
            return _allocator_churn(case, share, faults, severity)
    return None


def _share(case: FindingContext, row: ProcessRow) -> Share | None:
    """Return the kernel's part of the time in which the training works; the threads of a process share both alike."""
    readings = zip(case.values(_SYSTEM, row.id), case.values(_USER, row.id), strict=False)
    kernel = share_of_series([system / (system + user) for system, user in readings if system + user])
    if kernel is None:
        return None
    work = 1 - case.share(*WITHOUT_WORK).value
    return Share(kernel.value * work, kernel.low * work, kernel.high * work, kernel.samples)


def _allocator_churn(case: FindingContext, share: Share, faults: float, severity: str) -> Finding:
    besides = min(share.high + faults * _BESIDES_S, 1.0)
    gain = bound(case, msgspec.structs.replace(share, high=besides))
    return Finding(
        rule="allocator-churn",
        severity=severity,
        label="memory churn",
        title=f"memory churn: {size(faults * _PAGE_BYTES)} of memory a second are taken from the kernel anew, for "
        f"{percent(share.value)} of the time: keeping it brings {at_most(gain)}",
        cause="Large tensors are given back to the kernel when they are freed. The next ones get other pages, "
        "each of which is cleared and mapped when it is first written to.",
        remedy="Set MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ to 4294967296 in the environment, so that the "
        "process keeps what it frees (or preload jemalloc); reuse tensors in the loop (out=, operations in place).",
        gain_bound=gain,
        evidence=case.evidence(
            share.measure("in the kernel"), Measure("page faults", faults, "/s"), series=(_MINOR_FAULTS, _SYSTEM)
        ),
        page="allocator-churn",
    )


_CALL = re.compile(r"\bgc\.collect\(")


def garbage_collection(case: FindingContext) -> Finding | None:
    """Return the finding where calls of ``gc.collect`` surely take their part."""
    share = case.share_of(case.profile, lambda stack: _collects(case, stack))
    severity = severity_of(share.low, case.profile.total_samples)
    if severity is None:
        return None
    line, gain = case.heaviest_line(case.profile, lambda stack: _collects(case, stack)), bound(case, share)
    return Finding(
        rule="garbage-collection",
        severity=severity,
        label="garbage collection",
        title=f"garbage collection: gc.collect() takes {percent(share.value)} of the time{at(line)}: "
        f"leaving it out brings {at_most(gain)}",
        cause="Each call goes through all objects that the process has, whether there is garbage among them or not.",
        remedy=f"Leave out the call{at(line)}: tensors are freed with their last reference. Where cycles have to go, "
        "call it once an epoch, after gc.freeze() has set aside what was there at the start.",
        gain_bound=gain,
        evidence=case.evidence(share.measure("gc.collect()"), line=line),
        page="garbage-collection",
    )


def _collects(case: FindingContext, stack: int) -> bool:
    return bool(_CALL.search(case.reader.frames[case.reader.stacks[stack].frame].source or ""))


# Sooner than this, there is hardly time to see to it.
_SOON_S = 3600.0
# What is proportional is resident, too.
_SERIES = ("rss_bytes", GPU_SERIES)


def memory_growth(case: FindingContext) -> Finding | None:
    """Return the growth that fills its memory first, judged from the start of the run: a short look shows none."""
    so_far = Selection(to_ns=case.whole.to_ns, processes=case.whole.processes, rank=case.whole.rank)
    growing = [one for one in growth(case.reader, so_far) if one.verdict == "growing" and one.series in _SERIES]
    if not growing:
        return None
    worst = min(growing, key=lambda one: (one.time_to_limit_s or float("inf"), -(one.slope_bytes_per_s or 0.0)))
    return _memory_growth(case, worst)


def _memory_growth(case: FindingContext, worst: Growth) -> Finding:
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


_NEARLY_FULL, _MEMORY_FULL = 0.92, 0.97


def memory_limit(case: FindingContext) -> Finding | None:
    """Return the finding for the first training process whose machine or control group is nearly full."""
    for row in case.trainers:
        series = case.reader.find_series("rss_bytes", row.id)
        limit = tightest(case.reader, series, case.selection) if series else None
        if limit is not None and limit.limit_bytes and limit.used_bytes >= _NEARLY_FULL * limit.limit_bytes:
            return _memory_limit(case, limit)
    return None


def _memory_limit(case: FindingContext, limit: Limit) -> Finding:
    used = limit.used_bytes / limit.limit_bytes
    name = "the machine" if limit.kind == "host" else "its control group"
    return Finding(
        rule="memory-limit",
        severity=CRITICAL if used >= _MEMORY_FULL else WARNING,
        label="memory nearly full",
        title=f"memory nearly full: {percent(used)} of the {size(limit.limit_bytes)} of {name} are in use",
        cause="The kernel ends processes of the training when the rest is used up.",
        remedy="Use fewer workers or a smaller prefetch_factor, map files instead of reading them; or give it more.",
        gain_bound=None,
        evidence=case.evidence(Measure("memory in use", used), series=("rss_bytes",)),
        page="memory-limit",
    )


_MAJOR_FAULTS, _SWAPPED = "major_faults_per_s", "swap_bytes"
_MANY_MAJOR_FAULTS = 20.0


def swapping(case: FindingContext) -> Finding | None:
    """Return the finding for the first training process that has pages on disk and waits for them."""
    for row in case.trainers:
        faults, swapped = case.mean(_MAJOR_FAULTS, row.id), case.mean(_SWAPPED, row.id)
        if faults is not None and swapped and faults >= _MANY_MAJOR_FAULTS:
            return _swapping(case, row, faults, swapped)
    return None


def _swapping(case: FindingContext, row: ProcessRow, faults: float, swapped: float) -> Finding:
    return Finding(
        rule="swapping",
        severity=CRITICAL,
        label="swapping",
        title=f"swapping: main {row.pid} has {size(swapped)} on disk and waits for {faults:.0f} pages a second",
        cause="There is less memory than is in use, so parts of it are written to disk and read again.",
        remedy="Use less memory: fewer workers, a smaller prefetch_factor, memory-mapped data; or give it more.",
        gain_bound=None,
        evidence=case.evidence(
            Measure("pages from disk", faults, "/s"),
            Measure("in swap", swapped, "bytes"),
            series=(_MAJOR_FAULTS, _SWAPPED),
        ),
        page="swapping",
    )


_USED, _TOTAL = "gpu_memory_used_bytes", "gpu_memory_total_bytes"
# Torch keeps what it was given once: a GPU that is well used is nearly full, and stays so.
_WELL_USED, _GPU_MEMORY_FULL = 0.92, 0.98


def gpu_memory_limit(case: FindingContext) -> Finding | None:
    """Return the finding for the first GPU of the training that was seen to be nearly full."""
    for device in used_devices(case):
        used, total = case.most(_USED, device=device), case.values(_TOTAL, device=device)
        if used and total and used >= _WELL_USED * total[-1]:
            return _gpu_memory_limit(case, device, used / total[-1], total[-1])
    return None


def _gpu_memory_limit(case: FindingContext, device: str, part: float, total_bytes: float) -> Finding:
    return Finding(
        rule="gpu-memory-limit",
        severity=WARNING if part >= _GPU_MEMORY_FULL else INFO,
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
