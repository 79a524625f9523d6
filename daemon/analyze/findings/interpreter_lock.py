"""Rule: other threads of the training's own process compute in Python, and its main thread waits for the interpreter.

Python lets one thread at a time run. Who has work and neither runs nor waits for a core waits for its turn.
"""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.cores import CORE_WAIT, PRESSURE
from profd.daemon.analyze.findings.bounds import bound
from profd.daemon.analyze.findings.case import NONE, Case, Share, share_of_series
from profd.daemon.analyze.findings.cores import core_wait_readings, thread_cores
from profd.daemon.analyze.findings.devices import uses_gpu
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.severity import severity_of
from profd.daemon.analyze.findings.wording import at, at_most
from profd.daemon.analyze.phases import BACKWARD, FORWARD, LOGGING, LOSS, OPTIMIZER, OTHER
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.rows import ThreadRow
from profd.daemon.units import percent

# Phases in which nothing else is waited for: no disk, no batch, no device.
_WORK = (FORWARD, LOSS, OPTIMIZER, LOGGING, OTHER)
# Beyond, so little is left that most of it is the taking of turns itself, which a fix removes as well.
_TOLD_UNTIL = 0.9


class _Rival(msgspec.Struct, frozen=True):
    """A thread beside the main thread, and the part of a core that it uses."""

    thread: ThreadRow
    used: Share


def find(case: Case) -> Finding | None:
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


def _rival(case: Case) -> _Rival | None:
    """Return the Python thread of a training process that uses most CPU, its main thread aside."""
    processes = {row.id for row in case.trainers}
    found = [
        _Rival(row, used)
        for row in case.reader.threads.values()
        if row.process in processes and not row.is_main
        if (used := share_of_series(thread_cores(case, row))) is not None
    ]
    return max(found, key=lambda one: one.used.value, default=None)


def _held_up(case: Case) -> Share:
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
