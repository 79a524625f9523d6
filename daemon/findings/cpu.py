"""Rules on CPU time: limits, idle cores, the interpreter lock and oversubscription.

Python runs one thread at a time. A thread with work that neither runs nor waits for a core waits
for the interpreter lock.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from functools import partial

from profd.daemon.analyze.phases import (
    BACKWARD,
    FORWARD,
    LOGGING,
    LOSS,
    OPTIMIZER,
    OTHER,
    STEP,
    WITHOUT_WORK,
)
from profd.daemon.analyze.selection import Selection, leading_threads, led_by
from profd.daemon.analyze.series import CORE_WAIT, PRESSURE
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.findings.bounds import cpu_limits, readings_of, usable_cores
from profd.daemon.findings.context import INDIRECT, NEARLY_ALL, FindingContext
from profd.daemon.findings.finding import WARNING, Finding, Measure
from profd.daemon.findings.shares import NONE, Share, share_around, share_of_series
from profd.daemon.store.rows import ThreadRow
from profd.daemon.store.stepfunction import THREAD_CPU
from profd.daemon.units import plural

_THROTTLED = "cgroup_cpu_throttled_share"


def cpu_limit(context: FindingContext) -> Finding | None:
    share, limits = context.mean_share(_THROTTLED), cpu_limits(context)
    if share is None:
        return None
    return context.finding("cpu-limit", share, limit=f" of {min(limits):g} cores" if limits else "")


# An operation that takes this long by itself can surely be divided: many short ones in a row may
# not.
_LONG_NS = 100 * MILLISECOND_NS
# It needs so many samples in a row that chance finds as many in short ones for at most this part of
# the time.
_BY_CHANCE = 0.01
_CPU_SHARE = "host_cpu_share"


def idle_cores(context: FindingContext) -> Finding | None:
    if context.uses_gpu is not False or not context.steps_by_torch or not context.trainers:
        return None
    for row in context.trainers:
        whole, main = context.mean("cpu_cores", row.id), context.main_thread_cores(row.id)
        # The other threads of its process may have a tenth of a core beside the main thread.
        if whole is None or main is None or whole > main + 0.1:
            return None
    cores, used = usable_cores(context), context.mean(_CPU_SHARE)
    idle = round(cores * (1 - used)) if cores is not None and used is not None else 0
    if not idle:
        return None
    computing = _computing(context)
    lost = computing.times(idle / (1 + idle))
    return context.finding(
        "idle-cores",
        computing,
        Measure("idle cores", idle, "cores"),
        surely=lost.low,
        gain=partial(context.bound, lost, lost.gain),
        line=partial(context.line, *STEP),
        idle=plural(idle, "idle core"),
        threads=1 + idle,
    )


def _computing(context: FindingContext) -> Share:
    threads, whole = context.selection.threads(context.reader), context.share(*STEP)
    seen = context.profile.total_ns
    if not seen:
        return NONE
    shares = {stack: spent_ns / seen for stack, spent_ns in context.profile.time_ns.items()}
    least = functools.cache(lambda stack: _samples_in_a_row(shares.get(stack, 0.0)))
    rows = context.reader.intervals(context.time, threads)
    of_step = (
        row
        for row in rows
        if row.duration_ns >= _LONG_NS and context.phases.of_stack(row.stack) in STEP
    )
    long = [row.duration_ns for row in of_step if row.samples >= least(row.stack)]
    value = min(sum(long) / seen, whole.value)
    return share_around(value, (whole.high - whole.low) / 4, len(long))


def _samples_in_a_row(share: float) -> int:
    """Return how many samples in a row of a stack with a share of the time prove that it lasted.

    Each sample finds a stack that comes and goes with the probability of its share. So the part of
    samples in long rows falls with the length of rows.
    """
    share = min(share, 0.99)
    lengths = itertools.count(1)
    return next(one for one in lengths if share**one * (one * (1 - share) + share) <= _BY_CHANCE)


# Phases in which nothing else is waited for: no disk, no batch, no device.
_WORK = (FORWARD, LOSS, OPTIMIZER, LOGGING, OTHER)
# What a hand-over of the lock may take the thread that gives it up, at most: it wakes another one,
# sleeps, and is woken. In trials on a virtual machine it was 36 to 70 µs.
_HAND_OVER_S = 0.0001
_GIVES_WAY = "voluntary_switches_per_s"


def interpreter_lock(context: FindingContext) -> Finding | None:
    most, row, used, switching = max(
        _rivals(context), key=lambda one: one[0].value, default=(NONE, None, NONE, NONE)
    )
    if row is None:
        return None
    lost, is_switching = _held_up(context).at_most(most), switching.value > used.value
    selection = Selection(*context.time, frozenset({row.process}), thread=row.name)
    # If nearly all is lost, most of the rest is switching, which a fix removes as well.
    is_known = lost.high <= NEARLY_ALL
    # Hand-overs cost the rest as much again: caches are cold, and cores wake up. In trials the
    # whole loss was 1.0 to 2.4 times the share, and in one of seven 3.2 times.
    indirect = 1.0 if is_switching else INDIRECT

    def works(stack: int) -> bool:
        return context.phases.of_stack(stack) not in WITHOUT_WORK

    return context.finding(
        "interpreter-lock",
        lost,
        used.measure(f"cores of {row.name}"),
        gain=lambda: context.bound(lost, indirect=indirect) if is_known else None,
        line=lambda: context.heaviest_line(works, profile=context.profile_on(selection)),
        cases={"switching": is_switching, "nearly-all": not is_known},
        selection=selection,
        rival=row.name,
        leader=led_by(leading_threads(context.reader, context.selection)),
        per_s=f"{switching.value / _HAND_OVER_S:,.0f}",
    )


def _rivals(context: FindingContext) -> Iterator[tuple[Share, ThreadRow, Share, Share]]:
    """Yield the Python threads beside those that lead, and what each may take of their time.

    That is its CPU time, and the time of hand-overs of the lock between the two: all of it, and
    each of both.
    """
    processes = {row.id for row in context.trainers}
    sampled = context.reader.sampled_threads(context.time)
    threads = [row for row in context.reader.threads.values() if row.id in sampled]
    led = {row.os_tid for row in threads if row.is_main}
    rows = [row for row in threads if row.process in processes and row.os_tid not in led]
    cores, gives_way = (readings_of(context, rows, name) for name in (THREAD_CPU, _GIVES_WAY))
    for row in rows:
        if (used := share_of_series(cores.get(row.id, []))) is not None:
            leading = context.values(f"main_thread_{_GIVES_WAY}", row.process)
            switching = _taken(gives_way.get(row.id, [])).at_most(_taken(leading))
            yield used.plus(switching.value), row, used, switching


def _taken(per_s: Sequence[float]) -> Share:
    """Return the share of the time that so many hand-overs take at most."""
    return share_of_series([one * _HAND_OVER_S for one in per_s]) or NONE


def _held_up(context: FindingContext) -> Share:
    """Return the share of the time in which leading threads have work, and compute none of it.

    They wait for their turn, or hand it over in the kernel. Time that a lack of cores explains does
    not count.
    """
    work = context.share(*_WORK, BACKWARD) if context.uses_gpu is False else context.share(*_WORK)
    computing = share_of_series(_values(context, "main_thread_user_cores"))
    # Of leading threads, or if that is not read, of any thread.
    waited = share_of_series(_values(context, CORE_WAIT) or context.values(PRESSURE))
    if computing is None or waited is None:
        return NONE
    idle = 1 - (context.mean(_CPU_SHARE) or 1.0)
    if round((usable_cores(context) or 0.0) * idle):
        waited = NONE  # it waits behind the other thread, while another core has nothing to do
    value = max(work.value - computing.value - waited.value, 0.0)
    low = max(work.low - computing.high - waited.high, 0.0)
    return Share(value, low, max(work.high - computing.low, 0.0), work.samples)


def _values(context: FindingContext, name: str) -> list[float]:
    return [value for row in context.trainers for value in context.values(name, row.id)]


# The part of the time in which some thread waits for a core; below it a machine is well used.
_PRESSED = 0.35
_THREADS_A_CORE = 4
# The part of the machine's CPU time that the training uses: with less, other work fills the
# machine.
_OF_THE_MACHINE = 0.6


def oversubscription(context: FindingContext) -> Finding | None:
    pressure, cores = context.mean_share(PRESSURE), usable_cores(context)
    threads = context.sum_over_processes("threads")
    if (
        pressure is None
        or cores is None
        or pressure.low < _PRESSED
        or threads < _THREADS_A_CORE * cores
    ):
        return None
    host = context.mean(_CPU_SHARE)
    if host is None or context.sum_over_processes("cpu_cores") < _OF_THE_MACHINE * host * cores:
        return None
    return context.finding(
        "oversubscription",
        pressure,
        Measure("threads", threads, "threads"),
        severity=WARNING,
        threads=threads,
        cores=plural(round(cores), "core"),
        most=plural(round(cores), "thread"),
    )
