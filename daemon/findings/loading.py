"""Rules on the input of a training: DataLoaders, their workers, and shared memory."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from profd.daemon.analyze.phases import (
    COPY,
    DATA_LOAD,
    DATA_WAIT,
    REQUESTS,
    STARTUP,
    STEP,
    WAITING,
    own_frames,
)
from profd.daemon.analyze.selection import Selection, leading_threads, led_by
from profd.daemon.analyze.series import CORE_WAIT, PRESSURE
from profd.daemon.analyze.steps import take_steps
from profd.daemon.analyze.uncertainty import LOOKED_AT_NS
from profd.daemon.clock import MINUTE_NS
from profd.daemon.findings.bounds import ceiling, crew_for, usable_cores
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, Finding, Line
from profd.daemon.findings.kinds import spoken
from profd.daemon.findings.linetree import calls_of, library_call
from profd.daemon.findings.rule import hidden_if
from profd.daemon.findings.shares import Share
from profd.daemon.findings.texts import at, speeds_up
from profd.daemon.frameworks.frames import Meaning, function_means, means
from profd.daemon.store.rollups import minute_times
from profd.daemon.store.rows import FrameRow
from profd.daemon.timerange import TimeRange
from profd.daemon.units import about, percent, plural, size

HAND_OVER_S = 0.005
"""How long it takes to get a batch from a worker, in seconds.

On two programs 4 and 7 ms were measured (docs/findings.md).
"""


def load_in_process(context: FindingContext) -> Finding | None:
    loading = {stack for stack in context.profile.time_ns if _loads(context, stack)}
    share = context.share_of(loading.__contains__)
    # This spares the look at the cores.
    if context.severity("input-bound-in-process", share.low) is None:
        return None
    if context.has_only_started:
        return None

    def is_most(holds: Callable[[int], bool]) -> bool:
        profile = context.profile
        return 2 * profile.spent_ns(filter(holds, loading)) >= profile.spent_ns(loading)

    def goes_through(meaning: Meaning) -> bool:
        return is_most(lambda stack: context.means(stack, meaning))

    line = partial(_line_of_loading, context, loading)
    if is_most(partial(_steps_environment, context)):
        gain = context.bound(share, ceiling(context))
        return context.finding("input-bound-environment", share, gain=gain, line=line)
    crew = crew_for(context, share, share)
    per_s = take_steps(context.reader, context.selection, context.phases).per_s
    step_s = share.value / per_s if per_s else math.inf
    has_loader = goes_through("loader")
    # An IterableDataset takes no list of indices, and loading without a DataLoader has no worker to
    # spare.
    is_iterable = goes_through("iterable dataset") and not goes_through("shares data out")
    is_quick = has_loader and not is_iterable and step_s < HAND_OVER_S
    call = None if has_loader else calls_of(context, loading)[2]
    function, of_function, at_function = _costly_function(context, loading, call)
    by_workers = crew.most > 0 and not is_quick
    return context.finding(
        "input-bound-in-process",
        share,
        severity=INFO if is_quick else None,
        gain=crew.gain if by_workers else None,
        least_gain=crew.least if by_workers else None,
        line=line if has_loader else lambda: call,
        cases={
            "iterable": is_iterable,
            "without-loader": not has_loader,
            "crowded": not crew.most,
            "quick": is_quick,
            "collated": goes_through("collates"),
            "named": function is not None,
        },
        workers=crew.words,
        milliseconds=f"{1000 * step_s:.1f}",
        function=function,
        at_function=at_function,
        of_function=of_function,
    )


def _costly_function(
    context: FindingContext, loading: Collection[int], call: Line | None
) -> tuple[str | None, str, str]:
    """Return the user's function with most of the loading, its share and its place, in words.

    None if there is none. It is below ``call``, which loads without a DataLoader, or a DataLoader
    calls it.
    """

    def is_above(frame: FrameRow) -> bool:
        return frame.id != call.frame if call else not means(frame, "loader")

    frames_of = context.reader.frames_of
    below = {stack: [*itertools.dropwhile(is_above, frames_of(stack))][1:] for stack in loading}
    paths = {stack: [one.id for one in own_frames(frames)] for stack, frames in below.items()}
    name, stacks = context.innermost(paths)

    def frame_of(stack: int) -> FrameRow | None:
        return next((one for one in reversed(below[stack]) if spoken(one.function) == name), None)

    line = context.heaviest_line(stacks.__contains__, frame_of)
    place = at(line, called=library_call(context, stacks))
    share, kind = context.share_of(stacks.__contains__), context.kind_of(stacks)
    mostly = f", most of it {kind.what}" if kind else ""
    return name, f"{percent(share.value)} of the time{mostly}", place


def _line_of_loading(context: FindingContext, loading: Collection[int]) -> Line | None:
    """Return the line of the loop, or if a framework has the loop, that of dataset or collation."""

    def frame_of(stack: int) -> FrameRow | None:
        is_below = context.means(stack, "trainer")
        return context.own_frame(stack) if is_below else context.phases.user_line(stack)

    return context.heaviest_line(loading.__contains__, frame_of)


def _loads(context: FindingContext, stack: int) -> bool:
    """Say whether a stack loads data, and not for an evaluation: evaluating less spares that.

    The sampler's work has a finding of its own, as no worker does it.
    """
    is_input = context.phases.of_stack(stack) == DATA_LOAD and stack not in context.evaluating
    is_apart = is_apart_from_environment(context, stack) or _part(context, stack) == INDICES
    return is_input and not is_apart


_PARTS: tuple[Meaning, ...] = ("draws indices", "starts workers", "stops workers")
INDICES, STARTS, ENDS = _PARTS


def _part(context: FindingContext, stack: int) -> str | None:
    """Return what a stack does for the input of the training that no worker can do.

    It does one of these three things, or it is a ``DATA_WAIT``. None if it is anything else, or for
    an evaluation.
    """
    if stack in context.evaluating:
        return None
    parts = (one for one in _PARTS if context.means(stack, one))
    return next(parts, DATA_WAIT if context.phases.of_stack(stack) == DATA_WAIT else None)


_ENVIRONMENT = re.compile(r"(?i)env\w*\.(step|reset)\b")


def _steps_environment(context: FindingContext, stack: int) -> bool:
    frames = context.reader.frames_of(stack)
    return any(_ENVIRONMENT.search(f"{one.function} {one.text}") for one in frames)


def is_apart_from_environment(context: FindingContext, stack: int) -> bool:
    """Say whether a step of an environment waits in a stack, or does not simulate.

    The rule ``overhead`` counts such time.
    """
    kind = context.kinds.of_stack(stack)
    is_such = kind is not None and (kind.waits or context.kinds.is_no_pass(stack))
    return is_such and _steps_environment(context, stack)


def _waits(context: FindingContext) -> tuple[int, float, float]:
    """Return how often workers were started, and parts of the main threads' time.

    These are the waits for the first batches after starts, and the longest other wait of each
    thread: a single one is no loss.
    """
    starts = first_ns = 0
    longest_ns: Counter[int] = Counter()
    part_of = functools.cache(partial(_part, context))
    threads = context.selection.threads(context.reader)
    for time, thread in itertools.product(_looked_at(context), threads):
        rows = context.reader.intervals(time, [thread])
        parts = ((part_of(row.stack), row.duration_ns) for row in rows)
        before = None
        for part, run in itertools.groupby(parts, operator.itemgetter(0)):
            length_ns = sum(ns for _, ns in run)
            if part == INDICES:
                continue
            starts += part == STARTS
            if part == DATA_WAIT and before == STARTS:
                first_ns += length_ns
            elif part == DATA_WAIT:
                longest_ns[thread] = max(longest_ns[thread], length_ns)
            before = part
    whole_ns = context.profile.total_ns or 1
    return starts, first_ns / whole_ns, longest_ns.total() / whole_ns


def _looked_at(context: FindingContext) -> list[TimeRange]:
    """Return the ranges of time that are to be read for waits, in order.

    They are all of a short run. Of a long one they are the minutes with a start of workers, those
    after them, and those with the most waits: a long wait takes most of one.
    """
    reader, looked_at = context.reader, set[int]()
    waited_ns: Counter[int] = Counter()
    parts = {stack: _part(context, stack) for stack in context.profile.time_ns}
    stacks = [stack for stack, part in parts.items() if part in (STARTS, DATA_WAIT)]
    begun_ns = reader.info.started_ns
    for one in reader.rollups.split(context.time, context.selection.threads(reader)):
        for rest in one.rest:
            from_ns, to_ns = rest.within(context.time).moved(-begun_ns)
            looked_at.update(range(from_ns // MINUTE_NS, -(-to_ns // MINUTE_NS)))
        for row in minute_times(reader, one.threads, one.minutes, stacks=stacks):
            if parts[row.stack] == STARTS:
                looked_at |= {row.column, row.column + 1}
            else:
                waited_ns[row.column] += row.time_ns
    looked_at |= dict(waited_ns.most_common(LOOKED_AT_NS // MINUTE_NS)).keys()
    firsts = sorted(one for one in looked_at if one - 1 not in looked_at)
    lasts = sorted(one for one in looked_at if one + 1 not in looked_at)
    return [
        TimeRange(first * MINUTE_NS, (last + 1) * MINUTE_NS).moved(begun_ns).within(context.time)
        for first, last in zip(firsts, lasts, strict=True)
    ]


_AGAIN = 3


def starting_workers(context: FindingContext) -> Finding | None:
    """Return the time in which workers are started anew, with the waits for their first batches."""
    share = context.share_of(lambda stack: _part(context, stack) in (STARTS, ENDS))
    if not context.workers or not share.value:
        return None  # this spares the look at each interval
    times, first, _ = context.once(_waits)
    if times < _AGAIN:
        return None
    whole = share.plus(first)
    line = context.heaviest_line(lambda stack: _part(context, stack) == STARTS)
    # To keep them spares the starts; whether it spares first waits depends on the loading.
    return context.finding(
        "input-bound-starting",
        whole,
        # Not bounded by cores: starting also takes the cores' time.
        gain=context.bound(whole),
        least_gain=share.least_gain,
        line=lambda: line,
        cases={"anew": bool(line and re.search(r"\bnext\(.*\biter\(", line.source or ""))},
        starts=times,
    )


class Loaders(msgspec.Struct, frozen=True):
    """The workers of all ranks: each has ``count`` that live at the same time.

    ``busy`` is the share of their time with an order, ``line`` the line of the dataset with most of
    it. Each uses ``cores``, and has to wait for one for the share ``waited``; None if not read.
    ``mostly`` says what they do meanwhile, if that is of one kind.
    """

    count: int
    busy: Share
    line: Line | None
    cores: float | None
    waited: float | None
    mostly: str


_NOT_LOADING = frozenset({WAITING, STARTUP})


def take_loaders(context: FindingContext) -> Loaders | None:
    """Return the workers of the training together; None if there are none, or none was sampled."""
    processes = frozenset(row.id for row in context.workers)
    profile = context.profile_on(Selection(*context.time, processes, thread="MainThread"))
    if not profile.samples:
        return None
    phase_of = context.phases.of_stack
    loading = {stack for stack in profile.time_ns if phase_of(stack) not in _NOT_LOADING}
    busy, kind = context.share_of(loading.__contains__, profile), context.kind_of(loading, profile)
    cores, waited = map(context.mean_of_workers, ("cpu_cores", CORE_WAIT))
    # A worker that runs, or has to wait for a core, has an order: on a busy machine few stacks
    # are read of one.
    most = max(busy.high, min((cores or 0.0) + (waited or 0.0), 1.0))
    return Loaders(
        count=math.ceil(context.workers_at_once / len({row.parent for row in context.workers})),
        busy=msgspec.structs.replace(busy, high=most),
        line=context.heaviest_line(frame_of=context.own_frame, profile=profile),
        cores=cores,
        waited=waited,
        mostly=f", mostly by {kind.what}" if kind and not kind.waits else "",
    )


# A worker that is busy for more of the time has its next order before it has completed the last.
_SATURATED = 0.8


def _waited_for(context: FindingContext) -> tuple[Share, Loaders | None]:
    """Return the share of waits for batches, and the workers, or None if the share is small.

    First batches after a start count as a part of the start.
    """
    share = context.share_of(lambda stack: _part(context, stack) == DATA_WAIT)
    is_loss = partial(context.severity, "input-bound-saturated")
    if is_loss(share.low):
        share = share.plus(-context.once(_waits)[1])
    return share, context.once(take_loaders) if is_loss(share.low) else None


def _is_own_loader(context: FindingContext) -> bool:
    """Say whether the batches waited for come from processes that the user's code has started."""
    return not context.stacks_of("loader")


def _asks_environments(_: Finding, other: Finding) -> bool:
    """Say whether it is environments that are waited for: none can go ahead of the agent."""
    return other.rule == "input-bound-environments"


@hidden_if(_asks_environments)
def saturated_workers(context: FindingContext) -> Finding | None:
    share, loaders = context.once(_waited_for)
    if loaders is None or loaders.busy.high < _SATURATED:
        return None
    count, busy = loaders.count, loaders.busy
    crew = crew_for(context, busy.times(count), share, count)
    is_more = crew.most > count
    cores, waited = loaders.cores, loaders.waited
    waited = context.mean(PRESSURE) if waited is None else waited
    # What mostly waits, and not for a core, needs no core of its own.
    waits = cores is not None and cores + (waited or 0.0) < 0.25 * busy.value
    is_beyond = waits and (not is_more or crew.most == usable_cores(context))
    by_number, cheaper = is_more and not is_beyond, context.bound(share)
    per_s = take_steps(context.reader, context.selection, context.phases).per_s or 0.0
    return context.finding(
        "input-bound-saturated",
        share,
        busy.measure("workers busy"),
        gain=crew.gain if by_number else cheaper,
        least_gain=crew.least if by_number else None,
        cases={
            "unpaced": not per_s,
            "full": not is_more,
            "waiting": waits,
            "beyond": is_beyond,
            "own": is_more and context.once(_is_own_loader),
        },
        busy=percent(busy.value),
        mostly=loaders.mostly,
        count=plural(count, "worker"),
        pace=about(per_s),
        could=about(per_s * share.least_gain),
        workers=crew.words,
        at_loading=at(loaders.line),
        cheaper=speeds_up(cheaper, trains=context.trains),
        cores=cores,
    )


@hidden_if(_asks_environments)
def idle_workers(context: FindingContext) -> Finding | None:
    share, loaders = context.once(_waited_for)
    if loaders is None or loaders.busy.high >= _SATURATED:
        return None
    return context.finding(
        "input-bound-idle",
        share,
        loaders.busy.measure("workers busy"),
        surely=share.low - context.once(_waits)[2],
        # If cores are short, the main thread takes a finished batch late, because it waits for a
        # core, and so do the workers.
        severity=INFO if context.lacking >= share.low else None,
        cases=_cause_between(context, share, loaders),
    )


_AWAITS = re.compile(r"\bawait\b|^async for\b")


def awaited_input(context: FindingContext) -> Finding | None:
    """Return the finding on a step that an event loop, or a pool, has no input for."""
    phase_of = context.phases.of_stack

    def is_idle(stack: int) -> bool:
        return phase_of(stack) == DATA_WAIT and context.phases.is_within(stack, REQUESTS)

    def awaiting(stack: int) -> FrameRow | None:
        """Return the user's innermost frame that awaits something, while that is at work."""
        own = own_frames(context.reader.frames_of(stack))
        return next((one for one in reversed(own) if _AWAITS.search(one.text)), None)

    return context.finding(
        "input-bound-awaited",
        context.share_of(is_idle),
        line=lambda: (
            context.heaviest_line(lambda stack: phase_of(stack) not in STEP, awaiting)
            or context.line(DATA_WAIT)
        ),
        leader=led_by(leading_threads(context.reader, context.selection)),
    )


_MOST = 0.5


def _cause_between(context: FindingContext, share: Share, loaders: Loaders) -> dict[str, bool]:
    """Return the case of what is slow between workers and main thread.

    No case holds if batches take unlike times.
    """
    if context.once(_is_own_loader):
        return {"own": True}
    phase_of, threads = context.phases.of_stack, context.reader.threads.values()
    for name in {row.name for row in threads if function_means(row.name, "", "pins batches")}:
        thread = msgspec.structs.replace(context.selection, main_threads=False, thread=name)
        pinning = context.profile_on(thread)
        if context.share_of(lambda stack: phase_of(stack) == COPY, pinning).value >= _MOST:
            return {"pinning": True}

    def takes_a_batch(stack: int) -> bool:
        return phase_of(stack) == DATA_WAIT and not means(context.leaf(stack), "no batch yet")

    is_transfer = context.share_of(takes_a_batch).value >= _MOST * share.value
    # The main thread would take as long for the work of all workers.
    is_cheap = loaders.busy.value * loaders.count < _MOST * share.value
    return {"transfer": is_transfer and not is_cheap, "cheap": is_transfer and is_cheap}


_USED, _TOTAL = "shm_used_bytes", "shm_total_bytes"


def shared_memory(context: FindingContext) -> Finding | None:
    used, total = context.values(_USED), context.values(_TOTAL)
    if not context.workers or not used or not total:
        return None
    return context.finding("shared-memory", max(used) / total[-1], total=size(total[-1]))
