"""Rules on CPU time: limits, idle cores, the interpreter lock and oversubscription.

Python lets one thread at a time run. Who has work and neither runs nor waits for a core waits for its turn.
"""

from __future__ import annotations

import functools
import itertools
import statistics

import msgspec

from profd.daemon.analyze.phases import BACKWARD, FORWARD, LOGGING, LOSS, OPTIMIZER, OTHER, STEP
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import CORE_WAIT, PRESSURE
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.findings.bounds import bound, core_wait_readings, main_thread_cores, thread_cores, usable_cores
from profd.daemon.findings.context import (
    NONE,
    FindingContext,
    Share,
    living_at_once,
    share_around,
    share_of_series,
    uses_gpu,
)
from profd.daemon.findings.finding import WARNING, Finding, Measure, at, at_most, severity_of
from profd.daemon.store.rows import ThreadRow
from profd.daemon.units import percent, plural

_THROTTLED = "cgroup_cpu_throttled_share"


def cpu_limit(case: FindingContext) -> Finding | None:
    """Return the finding where a control group surely took the CPU away."""
    share = share_of_series(case.values(_THROTTLED), case.mean(_THROTTLED))
    severity = severity_of(share.low, case.profile.total_samples) if share else None
    if share is None or severity is None:
        return None
    limits = [row for row in case.reader.series.values() if row.name == "cgroup_cpu_limit_cores"]
    known = [point.value for row in limits if (point := case.reader.last_point(row.id))]
    limit = f" of {min(known):g} cores" if known else ""
    return Finding(
        rule="cpu-limit",
        severity=severity,
        label="throttled",
        title=f"throttled: the control group's limit{limit} stopped the training in {percent(share.value)} of its "
        "periods",
        cause="All threads of the group stand still for the rest of a period once they have used up its CPU time.",
        remedy="Raise the limit of the container, or use fewer threads and workers than it has cores: what runs in "
        "turns is slower than what does not start.",
        gain_bound=None,
        evidence=case.evidence(share.measure("periods with a stop"), series=(_THROTTLED,)),
        page="cpu-limit",
    )


# An operation that takes this long by itself can surely be divided: many short ones in a row may not.
_LONG_NS = 100 * MILLISECOND_NS
# And as many samples in a row found it there as chance finds in short ones for this part of the time at most.
_BY_CHANCE = 0.01
_NEARLY_ALWAYS = 0.99
# The main thread computes alone: other threads of its process have less than a tenth of a core beside it.
_ALONE = 0.1
_CPU_SHARE = "host_cpu_share"


def idle_cores(case: FindingContext) -> Finding | None:
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
            computing.measure("in long operations"),
            Measure("idle cores", idle, "cores"),
            line=line,
            series=(_CPU_SHARE,),
        ),
        page="idle-cores",
    )


def _is_alone(case: FindingContext) -> bool:
    """Say whether no training process uses more of the cores than its main thread does."""
    for row in case.trainers:
        whole, main = case.mean("cpu_cores", row.id), main_thread_cores(case, row.id)
        if whole is None or main is None or whole > main + _ALONE:
            return False
    return bool(case.trainers)


def _idle_cores(case: FindingContext) -> int:
    cores, used = usable_cores(case), case.mean(_CPU_SHARE)
    return round(cores * (1 - used)) if cores is not None and used is not None else 0


def _computing(case: FindingContext) -> Share:
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


# Phases in which nothing else is waited for: no disk, no batch, no device.
_WORK = (FORWARD, LOSS, OPTIMIZER, LOGGING, OTHER)
# Beyond, so little is left that most of it is the taking of turns itself, which a fix removes as well.
_TOLD_UNTIL = 0.9


class _Rival(msgspec.Struct, frozen=True):
    """A thread beside the main thread, and the part of a core that it uses."""

    thread: ThreadRow
    used: Share


def interpreter_lock(case: FindingContext) -> Finding | None:
    """Return the finding where the main thread surely waits for its turn, and another thread computes meanwhile."""
    rival = _rival(case)
    if rival is None:
        return None
    lost = _least(_held_up(case), rival.used)
    severity = severity_of(lost.low, case.profile.total_samples)
    if severity is None:
        return None
    selection = Selection(
        case.from_ns, case.to_ns, processes=frozenset({rival.thread.process}), thread=rival.thread.name
    )
    line = case.heaviest_line(case.profile_on(selection))
    gain = bound(case, lost) if lost.high <= _TOLD_UNTIL else None
    brings = at_most(gain) if lost.high <= _TOLD_UNTIL else "many times the pace"
    return Finding(
        rule="interpreter-lock",
        severity=severity,
        label="interpreter lock",
        title=f"interpreter lock: the main thread waits {percent(lost.value)} of the time while thread "
        f"{rival.thread.name} computes in Python{at(line)}: no wait brings {brings}",
        cause="Python lets one thread of a process run at a time. Each time that the main thread gives up its turn, in "
        "an operation of torch or at a wait, it may have to wait 5 ms for the next.",
        remedy=f"Do the work of thread {rival.thread.name}{at(line)} in a process of its own (multiprocessing, a "
        "worker of the DataLoader), or in operations that release the lock.",
        gain_bound=gain,
        evidence=msgspec.structs.replace(
            case.evidence(
                lost.measure("waiting for its turn"),
                rival.used.measure(f"cores of {rival.thread.name}"),
                line=line,
                series=("cpu_cores", CORE_WAIT, PRESSURE),
            ),
            selection=selection,
        ),
        page="interpreter-lock",
    )


def _rival(case: FindingContext) -> _Rival | None:
    """Return the Python thread of a training process that uses most CPU, its main thread aside."""
    processes = {row.id for row in case.trainers}
    found = [
        _Rival(row, used)
        for row in case.reader.threads.values()
        if row.process in processes and not row.is_main
        if (used := share_of_series(thread_cores(case, row))) is not None
    ]
    return max(found, key=lambda one: one.used.value, default=None)


def _held_up(case: FindingContext) -> Share:
    """Return the share of the time in which main threads have work, no CPU, and no want of cores explains it."""
    work = case.share(*_WORK) if uses_gpu(case) else case.share(*_WORK, BACKWARD)
    mains = [row for row in case.reader.threads.values() if row.is_main and case.selection.takes(row, case.reader)]
    on_cpu = share_of_series([value for row in mains for value in thread_cores(case, row)])
    waited = share_of_series(core_wait_readings(case))
    if on_cpu is None or waited is None:
        return NONE
    return Share(
        max(work.value - on_cpu.value - waited.value, 0.0),
        max(work.low - on_cpu.high - waited.high, 0.0),
        max(work.high - on_cpu.low, 0.0),
        work.samples,
    )


def _least(one: Share, other: Share) -> Share:
    return Share(min(one.value, other.value), min(one.low, other.low), min(one.high, other.high), one.samples)


# For what part of the time some thread waits for a core; below it a machine is well used.
_PRESSED = 0.35
_THREADS_A_CORE = 4
# Of the time that the machine computes: less, and others than this training fill it.
_OF_THE_MACHINE = 0.6
_PRESSURE = "host_cpu_pressure_share"


def oversubscription(case: FindingContext) -> Finding | None:
    """Return the finding where threads surely wait for cores, and they are those of this training."""
    pressure, cores = share_of_series(case.values(_PRESSURE), case.mean(_PRESSURE)), usable_cores(case)
    threads = _threads(case)
    if pressure is None or cores is None or pressure.low < _PRESSED or threads < _THREADS_A_CORE * cores:
        return None
    used, host = _used_cores(case), case.mean("host_cpu_share")
    if host is None or used < _OF_THE_MACHINE * host * cores:
        return None
    return Finding(
        rule="oversubscription",
        severity=WARNING,
        label="oversubscribed",
        title=f"oversubscribed: {threads:.0f} threads of the training share {plural(round(cores), 'core')}: "
        f"for {percent(pressure.value)} of the time some wait for one",
        cause="Operations are cut into as many parts as there are threads, and end when the last part does: "
        "the one whose thread had to wait for a core.",
        remedy=f"Set OMP_NUM_THREADS or torch.set_num_threads so that all processes together have no more than "
        f"{plural(round(cores), 'thread')}, in workers too.",
        gain_bound=None,
        evidence=case.evidence(
            pressure.measure("some thread waits for a core"),
            Measure("threads", threads, "threads"),
            series=(_PRESSURE, "threads"),
        ),
        page="oversubscription",
    )


def _threads(case: FindingContext) -> float:
    """Return how many threads the training processes and their workers have at once."""
    mains = sum(case.mean("threads", row.id) or 0.0 for row in case.trainers)
    workers = [count for row in case.workers if (count := case.mean("threads", row.id)) is not None]
    return mains + living_at_once(case) * (statistics.fmean(workers) if workers else 0.0)


def _used_cores(case: FindingContext) -> float:
    mains = sum(case.mean("cpu_cores", row.id) or 0.0 for row in case.trainers)
    workers = [used for row in case.workers if (used := case.mean("cpu_cores", row.id)) is not None]
    return mains + living_at_once(case) * (statistics.fmean(workers) if workers else 0.0)
