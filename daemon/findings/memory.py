"""Rules on memory: growth, limits, swapping, the allocator and the garbage collector.

Collections by Python itself have no frame and no line: a series has their share of the time.
"""

from __future__ import annotations

import math
import re
from functools import partial

from profd.daemon.analyze.memory import growth, tightest
from profd.daemon.analyze.phases import WITHOUT_WORK
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import first_and_last, total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import CRITICAL, WARNING, Finding, Measure
from profd.daemon.findings.kinds import library_of
from profd.daemon.findings.loading import take_loaders
from profd.daemon.findings.shares import NONE, Share, share_of_series
from profd.daemon.findings.traces import of_waits
from profd.daemon.naming import process_title
from profd.daemon.store.records import COLLECTING
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS
from profd.daemon.timerange import TimeRange
from profd.daemon.units import duration, size

_MINOR_FAULTS, _SYSTEM, _USER = "minor_faults_per_s", "cpu_system_cores", "cpu_user_cores"
_MANY_MINOR_FAULTS = 20_000.0
# A fault takes a microsecond, in a virtual machine two. The kernel's other time goes to other
# calls, or to a busy machine; if that is much more, faults are not what keeps the kernel busy.
_USUAL_S, _LONGEST_S = 2e-6, 5e-6
# What a fault may cost outside of the kernel: caches that it has displaced are filled again.
_BESIDES_S = 0.2e-6
_PAGE_BYTES = 4096


def allocator_churn(context: FindingContext) -> Finding | None:
    for row in context.trainers:
        faults, system = context.mean(_MINOR_FAULTS, row.id), context.mean(_SYSTEM, row.id)
        # The kernel's part of the time in which the training works: the threads of a process share
        # both alike.
        readings = zip(context.values(_SYSTEM, row.id), context.values(_USER, row.id), strict=False)
        kernel = share_of_series(
            [system / (system + user) for system, user in readings if system + user]
        )
        if (
            kernel is None
            or not faults
            or not system
            or faults < _MANY_MINOR_FAULTS
            or system > faults * _LONGEST_S
        ):
            continue
        kernel = kernel.times(1 - context.share(*WITHOUT_WORK).value)
        surely = kernel.times(min(faults * _USUAL_S / system, 1.0))
        share = Share(
            surely.value, surely.low, min(kernel.high + faults * _BESIDES_S, 1.0), kernel.samples
        )
        if found := context.finding(
            "allocator-churn",
            share,
            Measure("page faults", faults, "/s"),
            memory=size(faults * _PAGE_BYTES),
        ):
            return found
    return of_waits("gpu-allocations", context)


_CALL = re.compile(r"\bgc\.collect\(")


def collects_garbage(context: FindingContext, stack: int) -> bool:
    """Say whether a stack collects garbage, by the line of its leaf, because C has no frames."""
    return bool(_CALL.search(context.leaf(stack).text))


def garbage_collection(context: FindingContext) -> Finding | None:
    """Return the finding if the script, or else Python itself, collects garbage for long."""
    collects = partial(collects_garbage, context)
    share = context.share_of(collects)
    by_itself = context.severity("garbage-collection", share.low) is None

    def caller_of(stack: int) -> str | None:
        leaf = context.leaf(stack)
        library = library_of(leaf) if leaf.is_library else ""
        return library if collects(stack) else None

    library = next(iter(context.profile.time_by(caller_of)), "")
    if by_itself and context.has_only_started:
        return None
    if by_itself:  # in the process with most of it
        shares = (share_of_series(context.values(COLLECTING, row.id)) for row in context.trainers)
        share = max(
            (one for one in shares if one is not None), key=lambda one: one.value, default=NONE
        )
    return context.finding(
        "garbage-collection",
        share,
        line=None if by_itself else partial(context.heaviest_line, collects),
        cases={"by-itself": by_itself, "of-library": bool(library) and not by_itself},
        library=library,
    )


def memory_growth(context: FindingContext) -> Finding | None:
    """Return the growth that fills its memory first, judged from the start of the run."""
    so_far = Selection(
        to_ns=context.whole.to_ns, processes=context.whole.processes, rank=context.whole.rank
    )
    growing = [
        one
        for one in growth(context.reader, so_far)
        # What is proportional is resident, too.
        if one.verdict == "growing" and one.series != "pss_bytes"
    ]
    worst = min(
        growing,
        key=lambda one: (one.time_to_limit_s or math.inf, -(one.slope_bytes_per_s or 0.0)),
        default=None,
    )
    if worst is None:
        return None
    left_s, slope = worst.time_to_limit_s, worst.slope_bytes_per_s or 0.0
    row = context.reader.processes[worst.process]
    low, high = worst.interval_bytes_per_s or (None, None)
    return context.finding(
        "memory-growth",
        Measure(worst.series, slope, "bytes/s", low, high),
        severity=CRITICAL if left_s is not None and left_s < 3600 else WARNING,
        since_ns=max(worst.since_ns or context.time.from_ns, context.reader.info.started_ns),
        series=(worst.series,),
        process=f"{process_title(row.role, row.ordinal)} {row.pid}",
        slope=size(slope),
        where=f" on {worst.device}" if worst.series == MEMORY_OF_PROCESS else "",
        a_step=f", {size(worst.bytes_per_step)} a step" if worst.bytes_per_step else "",
        full=f": full in {duration(left_s)}" if left_s is not None else "",
    )


_LEAST_COPIED = 16e6  # of one worker
_STARTED_NS = 8 * SECOND_NS  # what a worker copies before that is of the interpreter


def copied_pages(context: FindingContext) -> Finding | None:
    """Return how fast workers copy the memory that a fork shares with the main process.

    A page that a worker writes to becomes its own, while it has no more pages than before. Workers
    that were read less than twice count like the others.
    """
    read = per_s = left = 0.0
    for row in context.workers:
        so_far = TimeRange(row.seen_ns + _STARTED_NS, context.whole.time.to_ns)
        series = (context.reader.find_series(name, row.id) for name in ("uss_bytes", "rss_bytes"))
        own, resident = (one and first_and_last(context.reader, one.id, so_far) for one in series)
        if not own or not resident or own[0] == own[1]:
            continue
        read += 1
        grew, took = (last.value - first.value for first, last in (own, resident))
        if grew >= max(_LEAST_COPIED, 4 * took):
            per_s += own[1].per_s_since(own[0])
            left += resident[1].value - own[1].value
    if not per_s or (loaders := context.once(take_loaders)) is None:
        return None
    per_s, left = (context.workers_at_once / read * one for one in (per_s, left))
    return context.finding(
        "copied-pages",
        Measure("uss_bytes", per_s, "bytes/s"),
        severity=WARNING,
        line=lambda: loaders.line,
        copied=size(per_s),
        left=size(left),
    )


def memory_limit(context: FindingContext) -> Finding | None:
    for row in context.trainers:
        series = context.reader.find_series("rss_bytes", row.id)
        limit = tightest(context.reader, series, context.selection) if series else None
        if limit is None or not limit.limit_bytes:
            continue
        own = context.sum_over_processes("rss_bytes")
        if found := context.finding(
            "memory-limit",
            limit.used_bytes / limit.limit_bytes,
            cases={"of-others": own < limit.used_bytes / 2},
            limit=size(limit.limit_bytes),
            whose="the machine" if limit.kind == "host" else "its control group",
            own=size(own),
        ):
            return found
    return None


_MAJOR_FAULTS, _SWAPPED = "major_faults_per_s", "swap_bytes"


def swapping(context: FindingContext) -> Finding | None:
    for row in context.trainers:
        faults, swapped = context.mean(_MAJOR_FAULTS, row.id), context.mean(_SWAPPED, row.id)
        if faults is not None and swapped and faults >= 20:
            return context.finding(
                "swapping",
                Measure("pages from disk", faults, "/s"),
                Measure("in swap", swapped, "bytes"),
                severity=CRITICAL,
                pid=row.pid,
                swapped=size(swapped),
                pages=faults,
            )
    return None


_USED, _TOTAL = "gpu_memory_used_bytes", "gpu_memory_total_bytes"


def gpu_memory_limit(context: FindingContext) -> Finding | None:
    for device in context.devices:
        most = total_of_series(context.reader, _USED, None, context.selection, device).most
        total = context.values(_TOTAL, device=device)
        if most <= 0 or not total:
            continue
        own = context.sum_over_processes(MEMORY_OF_PROCESS, device)
        if found := context.finding(
            "gpu-memory-limit",
            most / total[-1],
            cases={"of-others": 0 < own < most / 2},
            total=size(total[-1]),
            device=device,
            own=size(own),
        ):
            return found
    return None
