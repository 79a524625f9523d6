"""Rule: the ranks of a job wait for one another, and none of them is to blame."""

from __future__ import annotations

from profd.daemon.analyze.cores import PRESSURE
from profd.daemon.analyze.findings.case import NONE, Case, Share
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import PRICE, severity_of
from profd.daemon.analyze.findings.wording import at
from profd.daemon.analyze.phases import BACKWARD, COLLECTIVE
from profd.daemon.analyze.ranks.job import Job
from profd.daemon.analyze.ranks.waiting import take_waiting
from profd.daemon.units import percent, times


def find(case: Case) -> Finding | None:
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


def _share(case: Case, job: Job) -> Share:
    """Return the share of time in which ranks wait: by what they stand in, and where waits sleep by their CPU time."""
    if not job.sleeps_in_waits:
        return case.share(COLLECTIVE)
    waiting = take_waiting(job.efforts, case.mean(PRESSURE) or 0.0)
    if waiting is None:
        return NONE
    return Share(waiting.value, waiting.low, waiting.high, sum(effort.samples for effort in job.efforts))
