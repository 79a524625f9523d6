"""Rules on the ranks of a job: stragglers, and waiting in collectives."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

import msgspec

from profd.daemon.analyze.confidence import margin, standard_error
from profd.daemon.analyze.job import Job
from profd.daemon.analyze.phases import BACKWARD, COLLECTIVE, DATA_WAIT, STEP
from profd.daemon.analyze.ranks import (
    CORES,
    GPU,
    OwnWork,
    StragglerTest,
    lateness,
    median_of_others,
)
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import PRESSURE
from profd.daemon.findings.context import FindingContext, line_of
from profd.daemon.findings.finding import Finding, Line, Measure
from profd.daemon.findings.loading import take_loaders
from profd.daemon.findings.shares import NONE, Share
from profd.daemon.findings.traces import of_waits
from profd.daemon.store.merge import hosts_of, nodes_of
from profd.daemon.units import percent


def collectives(context: FindingContext) -> Finding | None:
    job = context.job
    found = None if job is None or job.late else _waiting(context, job)
    return found or of_waits("exposed-collectives", context)


def _waiting(context: FindingContext, job: Job) -> Finding | None:
    share = context.share(COLLECTIVE)
    if job.sleeps_in_waits:  # then the CPU time shows more than the stacks
        share = take_waiting(job.ranks, context.mean(PRESSURE) or 0.0) or NONE
    phase = (
        COLLECTIVE if context.share(COLLECTIVE).value > context.share(BACKWARD).value else BACKWARD
    )
    return context.finding(
        "collectives",
        share,
        line=partial(context.line, phase),
        selection=context.in_phase(phase),
    )


def take_waiting(ranks: Sequence[OwnWork], core_pressure: float) -> Share | None:
    """Return the share of all ranks' time in which they wait, if they sleep in waits.

    None if unknown. The value is the least that the CPU time leaves open: work and waits in
    backward differ only by CPU time, and it is unknown how much of that is the rank's other work.
    ``core_pressure`` is the share of time in which some thread of the machine waited for a core:
    for so long a rank that sleeps may have wanted to compute.
    """
    pairs = (pair for work in ranks for pair in zip(work.own, work.cores, strict=True))
    parts = [(own, cores) for own, cores in pairs if own is not None and cores is not None]
    if len(parts) < 2:
        return None
    leasts = [max(1 - own - cores, 0.0) for own, cores in parts]
    value = statistics.fmean(leasts)
    around = margin(standard_error(leasts))
    most = statistics.fmean(min(1 - own, 1 - min(cores, 1.0)) for own, cores in parts)
    return Share(
        value,
        max(value - around - core_pressure, 0.0),
        min(most + around, 1.0),
        sum(work.samples for work in ranks),
    )


def straggler(context: FindingContext) -> Finding | None:
    job = context.job
    if job is None or not job.late:
        return None
    late = job.late[0]
    if (severity := context.severity("straggler", late.low)) is None:
        return None
    work = job.work(late.rank)
    share = Share(late.surplus, max(late.low, 0.0), late.high, work.samples)
    phase = late.place.phase if late.place else BACKWARD
    line = _line(context, job, late)
    is_off_cpu = _is_off_cpu(job, late)
    gain = share.gain
    if not is_off_cpu:
        # It may compute more than the others in backward too, beyond what is seen of it: then a
        # step is no shorter than what the others surely work.
        gain = max(1 / max(job.work_of_others(late.rank), 0.01), gain)
    own, others = work.own_share or 0.0, median_of_others(job.ranks, late.rank) or 0.0
    slower = _slower_clock(job, late.rank) if late.measure == GPU else None
    return context.finding(
        "straggler",
        share,
        Measure(f"own work of rank {late.rank}", own),
        Measure("own work of the others, median", others),
        Measure("rank", float(late.rank), ""),
        severity=severity,
        gain=gain,
        line=lambda: line,
        selection=msgspec.structs.replace(context.selection, rank=late.rank, phase=phase),
        cases={
            "of-cores": late.measure == CORES,
            "of-gpu": late.measure == GPU,
            "slow-clock": slower is not None,
            "off-cpu": is_off_cpu,
            "another": len(job.late) == 2,
            "several": len(job.late) > 2,
            "in-step": late.place is None or phase in STEP,
            "several-hosts": bool(nodes_of(context.reader)),
        },
        rank=late.rank,
        host=_host_of(context, late.rank),
        own=percent(own),
        others=percent(others),
        where=phase,
        function=line.function if line else phase,
        late=", ".join(str(one.rank) for one in job.late[1:]),
        slower=percent(slower or 0.0),
    )


def _is_off_cpu(job: Job, late: StragglerTest) -> bool:
    """Say whether a late rank has hardly more CPU time than the others: it sleeps."""
    if not job.sleeps_in_waits or late.measure == CORES:
        return False
    by_cores = lateness(job.ranks, late.rank, CORES)
    return by_cores is not None and by_cores.surplus < 0.1 * late.surplus


def _host_of(context: FindingContext, rank: int) -> str:
    hosts = hosts_of(context.reader)
    of_rank = (hosts[row.id] for row in context.trainers if row.rank == rank)
    return next(of_rank, context.reader.info.host)


def _slower_clock(job: Job, rank: int) -> float | None:
    """Return by what part a rank's GPU is clocked below the median of the others.

    None if it is not, or if it is unknown. Clocks of GPUs of one kind differ by a few percent.
    """
    clocks = [work.clock_hz for work in job.ranks if work.rank != rank and work.clock_hz]
    mine = job.work(rank).clock_hz
    slower = 1 - mine / statistics.median(clocks) if mine and clocks else 0.0
    return slower if slower >= 0.05 else None


def _line(context: FindingContext, job: Job, late: StragglerTest) -> Line | None:
    """Return the line that makes a rank late, or that keeps the workers for which it waits."""
    selection = Selection(*context.time, context.whole.processes, late.rank, main_threads=True)
    alone = FindingContext(context.reader, selection, context.phases)
    if late.place is None:
        return alone.line(BACKWARD)
    if late.place.phase == DATA_WAIT and (loaders := take_loaders(alone)) and loaders.line:
        return loaders.line
    return line_of(job.work(late.rank).frames[late.place])
