"""Rule: the model computes on the CPU with fewer threads than there are idle cores for."""

from __future__ import annotations

import functools
import itertools

from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import NONE, Case, Share, share_around
from profd.daemon.analyze.findings.cores import main_thread_cores, usable_cores
from profd.daemon.analyze.findings.devices import uses_gpu
from profd.daemon.analyze.findings.finding import Finding, Measure
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import STEP
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.units import percent, plural

# An operation that takes this long by itself can surely be divided: many short ones in a row may not.
_LONG_NS = 100 * MILLISECOND_NS
# And as many samples in a row found it there as chance finds in short ones for this part of the time at most.
_BY_CHANCE = 0.01
_NEARLY_ALWAYS = 0.99
# The main thread computes alone: other threads of its process have less than a tenth of a core beside it.
_ALONE = 0.1
_SERIES = "host_cpu_share"


def find(case: Case) -> Finding | None:
    """Return the finding where long operations surely compute in one thread, beside cores that nobody uses."""
    idle = 0 if uses_gpu(case) or not case.is_training or not _is_alone(case) else _idle_cores(case)
    if not idle:
        return None
    computing = _computing(case)
    part = idle / (1 + idle)
    lost = Share(computing.value * part, computing.low * part, computing.high * part, computing.samples)
    severity = severity_of(lost.low, case.profile.total_samples)
    if severity is None:
        return None
    gain, line = bound(case, lost, lost.gain), case.line(*STEP)
    return Finding(
        rule="idle-cores",
        severity=severity,
        label="cores idle",
        title=f"cores idle: the model computes {percent(computing.value)} of the time in one thread{at(line)}, beside "
        f"{plural(idle, 'idle core')}: {1 + idle} threads bring {at_most(gain)}",
        cause="The operations are long enough to be divided among threads, and only one has a part in them.",
        remedy=f"Call torch.set_num_threads({1 + idle}), or set OMP_NUM_THREADS={1 + idle}; see what set it to 1.",
        gain_bound=gain,
        evidence=case.evidence(
            computing.measure("in long operations"), Measure("idle cores", idle, "cores"), line=line, series=(_SERIES,)
        ),
        page="idle-cores",
    )


def _is_alone(case: Case) -> bool:
    """Say whether no training process uses more of the cores than its main thread does."""
    for row in case.trainers:
        whole, main = case.mean("cpu_cores", row.id), main_thread_cores(case, row.id)
        if whole is None or main is None or whole > main + _ALONE:
            return False
    return bool(case.trainers)


def _idle_cores(case: Case) -> int:
    cores, used = usable_cores(case), case.mean(_SERIES)
    return round(cores * (1 - used)) if cores is not None and used is not None else 0


def _computing(case: Case) -> Share:
    """Return the share of the time in which main threads stood in one operation of a step for long."""
    threads, whole, seen = case.selection.threads(case.reader), case.share(*STEP), case.profile.total_ns
    if not seen:
        return NONE
    shares = {stack: spent_ns / seen for stack, spent_ns in case.profile.time_ns.items()}
    least = functools.cache(lambda stack: _samples_in_a_row(shares.get(stack, 0.0)))
    long = [
        row.duration_ns
        for row in case.reader.intervals(case.from_ns, case.to_ns, threads)
        if row.duration_ns >= _LONG_NS and case.phases.of_stack(row.stack) in STEP and row.samples >= least(row.stack)
    ]
    value = min(sum(long) / seen, whole.value)
    return share_around(value, (whole.high - whole.low) / 4, len(long))


def _samples_in_a_row(share: float) -> int:
    """Return how many samples in a row of one stack tell that it lasted, where it has this share of the time.

    A stack that comes and goes between samples is found in each with the chance of its share; so long rows are a part
    of all samples that falls with their length.
    """
    share = min(share, _NEARLY_ALWAYS)
    lengths = itertools.count(1)
    return next(one for one in lengths if share**one * (one * (1 - share) + share) <= _BY_CHANCE)
