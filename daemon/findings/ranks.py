"""Rules on the ranks of a job: stragglers, and waiting in collectives."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.job import Job
from profd.daemon.analyze.phases import BACKWARD, COLLECTIVE, DATA_WAIT, STEP
from profd.daemon.analyze.ranks import StragglerTest, median_of_others, own_share, take_waiting
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import PRESSURE
from profd.daemon.findings.context import NONE, FindingContext, Share, line_of, take_loaders
from profd.daemon.findings.finding import PRICE, Evidence, Finding, Line, Measure, at, severity_of
from profd.daemon.store.merge import hosts_of, nodes_of
from profd.daemon.units import percent, times


def collectives(case: FindingContext) -> Finding | None:
    """Return the finding where ranks surely wait, and no rank comes last time and again."""
    job = case.job
    if job is None or job.late:
        return None
    share = _share(case, job)
    severity = severity_of(share.low, case.profile.total_samples, PRICE)
    if severity is None:
        return None
    phase = COLLECTIVE if case.share(COLLECTIVE).value > case.share(BACKWARD).value else BACKWARD
    line = case.line(phase)
    return Finding(
        rule="collectives",
        severity=severity,
        label="collectives",
        title=f"collectives: {len(job.efforts)} ranks wait {percent(share.value)} of the time to exchange data"
        f"{at(line)}, none for one that is late: no wait brings at most {times(share.gain)}",
        cause="Each step exchanges all gradients, and no rank goes on until it has those of the others. All ranks have "
        "about as much to do, so the exchange itself takes its time, or steps are longer on one rank by turns.",
        remedy="Exchange less often: larger batches a rank, or gradients added up over several under model.no_sync(); "
        "exchange less: a compression hook; or over a faster network. Give each rank batches of the same length.",
        gain_bound=share.gain,
        evidence=case.evidence(share.measure("waits for other ranks"), phase=phase, line=line, series=("cpu_cores",)),
        page="collectives",
    )


def _share(case: FindingContext, job: Job) -> Share:
    """Return the share of time in which ranks wait: by what they stand in, and where waits sleep by their CPU time."""
    if not job.sleeps_in_waits:
        return case.share(COLLECTIVE)
    waiting = take_waiting(job.efforts, case.mean(PRESSURE) or 0.0)
    if waiting is None:
        return NONE
    return Share(waiting.value, waiting.low, waiting.high, sum(effort.samples for effort in job.efforts))


_OFF_CPU = 0.1
_LEAST_WORK = 0.01


def straggler(case: FindingContext) -> Finding | None:
    """Return the finding where a rank surely makes the others wait."""
    job = case.job
    if job is None or not job.late:
        return None
    late = job.late[0]
    severity = severity_of(late.low, case.profile.total_samples)
    if severity is None:
        return None
    share = Share(late.surplus, max(late.low, 0.0), late.high, job.effort(late.rank).samples)
    line, phase = _line(case, job, late), late.place.phase if late.place else BACKWARD
    function = line.function if line else phase
    gain = _bound(job, late, share)
    least = "at least " if late.is_of_cores else ""
    return Finding(
        rule="straggler",
        severity=severity,
        label="straggler",
        title=f"straggler: {_who(case, late.rank)} makes the others wait {least}{percent(late.surplus)} of the "
        f"time, in {function}{at(line)}: without that steps get at most {times(gain)} as fast",
        cause=_cause(job, late, phase),
        remedy=_remedy(case, late, function, line, phase),
        gain_bound=gain,
        evidence=Evidence(
            _measures(job, late, share),
            case.from_ns,
            case.to_ns,
            msgspec.structs.replace(case.selection, rank=late.rank, phase=phase),
            line,
            ("cpu_cores", "step_count"),
        ),
        page="straggler",
    )


def _bound(job: Job, late: StragglerTest, share: Share) -> float:
    """Return by how many times steps get faster at most once a rank is not late.

    Who computes more than the others may do so in backward too, beyond what is seen of it: then a step is no shorter
    than what the others surely work. Who waits for something else is late by what is seen.
    """
    if _is_off_cpu(job, late):
        return share.gain
    return max(1 / max(job.work_of_others(late.rank), _LEAST_WORK), share.gain)


def _line(case: FindingContext, job: Job, late: StragglerTest) -> Line | None:
    """Return the line that makes a rank late; where it waits for its workers, the line that keeps those."""
    if late.place is None:
        return _alone(case, late.rank).line(BACKWARD)
    if late.place.phase == DATA_WAIT:
        loaders = take_loaders(_alone(case, late.rank))
        if loaders is not None and loaders.line is not None:
            return loaders.line
    return line_of(job.effort(late.rank).frames[late.place])


def _who(case: FindingContext, rank: int) -> str:
    """Return a rank, with its node where there are several."""
    return f"rank {rank} on {_host(case, rank)}" if nodes_of(case.reader) else f"rank {rank}"


def _host(case: FindingContext, rank: int) -> str:
    hosts = hosts_of(case.reader)
    return next((hosts[row.id] for row in case.trainers if row.rank == rank), case.reader.info.host)


def _alone(case: FindingContext, rank: int) -> FindingContext:
    """Return the case of one rank."""
    whole = Selection(case.from_ns, case.to_ns, case.whole.processes, rank, main_threads=True)
    return FindingContext(case.reader, whole, case.phases)


def _cause(job: Job, late: StragglerTest, phase: str) -> str:
    own, others = own_share(job.effort(late.rank)), median_of_others(job.efforts, late.rank)
    also = ", ".join(str(one.rank) for one in job.late[1:])
    told = f"Rank {late.rank} works {percent(own or 0)} of each step by itself, the others {percent(others or 0)}, and "
    told += f"most of the difference is {phase}. They stand in backward or in a collective until it has come, "
    told += "and are not what is slow."
    if _is_off_cpu(job, late):
        told += " It hardly uses the CPU meanwhile: it waits for storage, the network, or other processes."
    return f"{told} Rank {also} is late too." if also else told


def _is_off_cpu(job: Job, late: StragglerTest) -> bool:
    """Say whether a rank spends what it takes longer without the CPU, as far as its CPU time tells."""
    by_cores = job.lateness_of_cores(late.rank) if job.sleeps_in_waits and not late.is_of_cores else None
    return by_cores is not None and by_cores.surplus < _OFF_CPU * late.surplus


def _remedy(case: FindingContext, late: StragglerTest, function: str, line: Line | None, phase: str) -> str:
    host = _host(case, late.rank)
    if late.place is None or phase in STEP:
        return (
            f"See what rank {late.rank} on {host} has more of to compute{at(line)}: longer batches, more layers, "
            "fewer or slower cores."
        )
    return (
        f"See what is different for rank {late.rank} on {host} in {function}{at(line)}: its part of the data, "
        "its disk, its network, what else runs there; or spread that work over all ranks."
    )


def _measures(job: Job, late: StragglerTest, share: Share) -> tuple[Measure, ...]:
    own, others = own_share(job.effort(late.rank)), median_of_others(job.efforts, late.rank)
    name = "CPU time beyond the others'" if late.is_of_cores else "work beyond the others'"
    return (
        share.measure(name),
        Measure(f"own work of rank {late.rank}", own or 0.0),
        Measure("own work of the others, median", others or 0.0),
        Measure("rank", float(late.rank), ""),
    )
