"""Rules on CPU time: limits, idle cores, the interpreter lock and oversubscription.

Python runs one thread at a time, the one that holds the interpreter's lock.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from statistics import fmean

from profd.daemon.analyze.phases import (
    STEP,
    WITHOUT_WORK,
    own_frame,
)
from profd.daemon.analyze.selection import Selection, leading_threads, led_by
from profd.daemon.analyze.series import CORE_WAIT, PRESSURE
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.findings.bounds import cpu_limits, readings_of, usable_cores
from profd.daemon.findings.context import INDIRECT, MOST, NEARLY_ALL, FindingContext
from profd.daemon.findings.finding import WARNING, Finding, Measure
from profd.daemon.findings.shares import NONE, Share, share_around, share_of_series
from profd.daemon.frameworks.frames import means
from profd.daemon.store.records import HAND_OVERS, LOCK_HELD, LOCK_WAIT
from profd.daemon.store.rows import FrameRow, ThreadRow
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


# What it takes the leading thread to give the lock up and to run again, beside its wait for the
# lock and for a core: it wakes another thread, sleeps, is woken, and finds its caches cold.
_HAND_OVER_S = 0.00005
# Python takes the lock from a thread after 5 ms. One that gives it up in less than half of that
# does so by itself.
_SHORT_TURN_S = 0.0025
_GIVES_WAY = "main_thread_{}voluntary_switches_per_s"


def interpreter_lock(context: FindingContext) -> Finding | None:
    def works(stack: int) -> bool:
        return context.phases.of_stack(stack) not in WITHOUT_WORK

    waits = share_of_series(_values(context, LOCK_WAIT))
    held = sorted(_held(context), key=itemgetter(0), reverse=True)
    if waits is None or not held:
        return None
    most, row = held[0]
    all_held = sum(share for share, _ in held)
    queued, per_s = _queued(context, max(all_held - waits.value, 0.0))
    switching = queued + per_s * _HAND_OVER_S
    lost = waits.plus(switching).at_most(context.share_of(works))
    if context.severity("interpreter-lock", lost.low) is None:
        return None
    selection = Selection(*context.time, frozenset({row.process}), thread=row.name)
    others = "" if most > MOST * all_held else f" and {plural(len(held) - 1, 'other')}"
    # If nearly all is lost, most of the rest is switching, which a fix removes as well.
    is_known = lost.high <= NEARLY_ALL

    profile, line_of = context.profile_on(selection), partial(_called_line, context)
    line = context.heaviest_line(works, line_of, profile)
    line = line or context.heaviest_line(frame_of=line_of, profile=profile)
    kind = context.kinds.of_frame(context.reader.frames[line.frame]) if line else None
    return context.finding(
        "interpreter-lock",
        lost,
        Measure(f"{row.name} holds the lock", most),
        Measure("hand-overs", per_s, "per second"),
        # The waits for a core that a fix removes are in the share: it removes no others.
        gain=lambda: (
            context.bound(lost, lost.gain / (1 - INDIRECT * lost.high)) if is_known else None
        ),
        line=lambda: line,
        cases={
            "switching": all_held < per_s * _SHORT_TURN_S,
            "nearly-all": not is_known,
            "polls": bool(kind and kind.polls),
        },
        selection=selection,
        rival=f"{led_by([row.name])}{others}",
        leader=led_by(leading_threads(context.reader, context.selection)),
        per_s=f"{per_s:,.0f}",
    )


def _called_line(context: FindingContext, stack: int) -> FrameRow | None:
    """Return the user's line at work in a stack: in an event loop, what that has called."""
    frames = context.reader.frames_of(stack)
    loops = [depth for depth, one in enumerate(frames) if means(one, "event loop")]
    return own_frame(frames[loops[-1] :]) if loops else context.phases.user_line(stack)


def _held(context: FindingContext) -> Iterator[tuple[float, ThreadRow]]:
    """Yield for what share of the time each Python thread beside the leading one has the lock.

    A thread that has it without a core, or has just given it up, keeps nobody else waiting by what
    it computes.
    """
    processes = {row.id for row in context.trainers}
    rows = [row for row in context.reader.threads.values() if row.process in processes]
    held = readings_of(context, rows, LOCK_HELD)
    rows = [row for row in rows if any(held.get(row.id, ()))]
    cores = readings_of(context, rows, THREAD_CPU)
    for row in rows:
        if cores.get(row.id):
            yield min(fmean(held[row.id]), fmean(cores[row.id])), row


def _queued(context: FindingContext, held: float) -> tuple[float, float]:
    """Return for what share of the time another thread keeps the leading one from a core.

    The leading thread has the lock, or needs none, but the other runs on its core for up to the
    share ``held``. Or it gave its core up at a hand-over, and stands behind other work when it is
    woken. With how many hand-overs a second there are.
    """
    waited, over, sleeps, loses = (
        fmean(_values(context, name) or [0.0])
        for name in (CORE_WAIT, HAND_OVERS, _GIVES_WAY.format(""), _GIVES_WAY.format("in"))
    )
    per_s = min(over, sleeps + loses)
    behind = waited * per_s / max(sleeps + loses, 1.0)
    return min(waited, held + behind), per_s


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
