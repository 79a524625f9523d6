"""Rules on the input of a training: DataLoaders, their workers, and shared memory."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from profd.daemon.analyze.phases import (
    COPY,
    DATA_LOAD,
    DATA_WAIT,
    STARTUP,
    WAITING,
    own_frames,
)
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import take_steps
from profd.daemon.findings.bounds import ceiling, usable_cores
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, Finding, Line
from profd.daemon.findings.kinds import spoken
from profd.daemon.findings.linetree import line_of_call
from profd.daemon.findings.shares import Share
from profd.daemon.findings.texts import at
from profd.daemon.frameworks.frames import Meaning, function_means, means
from profd.daemon.store.rows import FrameRow
from profd.daemon.units import percent, plural, size

HAND_OVER_S = 0.005
"""How long it takes to get a batch from a worker, in seconds.

On two programs 4 and 7 ms were measured (docs/findings.md).
"""


def load_in_process(context: FindingContext) -> Finding | None:
    share = _share(context, DATA_LOAD)
    # This spares the look at the cores.
    if context.severity("input-bound-in-process", share.low) is None:
        return None
    if context.has_only_started:
        return None
    if _is_most(context, partial(_steps_environment, context)):
        share = context.share_of(lambda stack: _loads(context, stack))
        gain, line = context.bound(share, ceiling(context)), partial(_line_of_loading, context)
        return context.finding("input-bound-environment", share, gain=gain, line=line)
    # Workers needed to keep up with steps that no longer load, capped by the cores to spare.
    needed = -(-share.value // (1 - min(share.value, 0.99)))
    workers = max(int(min(needed, max((usable_cores(context) or needed) - 1, 1))), 1)
    gain = context.bound(share, ceiling(context))
    per_s = take_steps(context.reader, context.selection, context.phases).per_s
    step_s = share.value / per_s if per_s else math.inf
    has_loader = _goes_through(context, "loader")
    # An IterableDataset takes no list of indices, and loading without a DataLoader has no worker to
    # spare.
    is_iterable = _goes_through(context, "iterable dataset")
    is_iterable &= not _goes_through(context, "shares data out")
    is_quick = has_loader and not is_iterable and step_s < HAND_OVER_S
    loading = {stack for stack in context.profile.time_ns if _loads(context, stack)}
    call = None if has_loader else line_of_call(context, loading)
    function, of_function, function_line = _costly_function(context, loading, call)
    cases = {
        "iterable": is_iterable,
        "quick": is_quick,
        "without-loader": not has_loader,
        "named": function is not None,
    }
    return context.finding(
        "input-bound-in-process",
        share,
        severity=INFO if is_quick else None,
        gain=gain,
        line=partial(_line_of_loading, context) if has_loader else lambda: call,
        cases=cases,
        workers=plural(workers, "worker"),
        number=workers,
        milliseconds=f"{1000 * step_s:.1f}",
        function=function,
        at_function=at(function_line),
        of_function=percent(of_function.value),
    )


def _costly_function(
    context: FindingContext, loading: Collection[int], call: Line | None
) -> tuple[str | None, Share, Line | None]:
    """Return the user's function with most of the loading, its share and line; None without one.

    It is below ``call``, which loads without a DataLoader, or a DataLoader calls it.
    """
    paths: dict[int, list[int]] = {}
    for stack in loading:
        frames = context.reader.frames_of(stack)
        begins = (one.id == call.frame if call else means(one, "loader") for one in frames)
        first = next((depth for depth, is_begin in enumerate(begins, 1) if is_begin), len(frames))
        paths[stack] = [one.id for one in own_frames(frames[first:])]
    name, stacks = context.innermost(paths)

    def frame_of(stack: int) -> FrameRow | None:
        return next(
            (
                one
                for one in reversed(context.reader.frames_of(stack))
                if spoken(one.function) == name
            ),
            None,
        )

    line = context.heaviest_line(stacks.__contains__, frame_of)
    return name, context.share_of(stacks.__contains__), line


def _line_of_loading(context: FindingContext) -> Line | None:
    """Return the line of the loop, or if a framework has the loop, that of dataset or collation."""

    def frame_of(stack: int) -> FrameRow | None:
        frames, line = context.reader.frames_of(stack), context.phases.user_line(stack)
        trainers = [depth for depth, one in enumerate(frames, 1) if means(one, "trainer")]
        return next(iter(own_frames(frames[trainers[-1] :])), line) if trainers else line

    return context.heaviest_line(partial(_loads, context), frame_of)


def _loads(context: FindingContext, stack: int) -> bool:
    is_input = context.phases.of_stack(stack) == DATA_LOAD and stack not in context.evaluating
    return is_input and not is_apart_from_environment(context, stack)


def _share(context: FindingContext, phase: str) -> Share:
    """Return the share of a phase in the training itself.

    Batches of evaluations do not count: evaluating less spares them.
    """
    of_stack, aside = context.phases.of_stack, context.evaluating
    return context.share_of(lambda stack: of_stack(stack) == phase and stack not in aside)


_ENVIRONMENT = re.compile(r"(?i)env\w*\.(step|reset)\b")


def _steps_environment(context: FindingContext, stack: int) -> bool:
    frames = context.reader.frames_of(stack)
    return any(_ENVIRONMENT.search(f"{one.function} {one.text}") for one in frames)


def _is_most(context: FindingContext, holds: Callable[[int], bool]) -> bool:
    """Say whether most of the loading in the main thread is in such stacks."""
    of_stack = context.phases.of_stack
    share = context.share_of(lambda stack: of_stack(stack) == DATA_LOAD and holds(stack))
    return 2 * share.value >= context.share(DATA_LOAD).value


def _goes_through(context: FindingContext, meaning: Meaning) -> bool:
    return _is_most(context, lambda stack: context.means(stack, meaning))


def is_apart_from_environment(context: FindingContext, stack: int) -> bool:
    """Say whether a step of an environment waits in a stack, or does not simulate.

    The rule ``overhead`` counts such time.
    """
    kind = context.kinds.of_stack(stack)
    is_such = kind is not None and (kind.waits or context.kinds.is_no_pass(stack))
    return is_such and _steps_environment(context, stack)


class Loaders(msgspec.Struct, frozen=True):
    """All workers: ``at_once`` lived at the same time, ``started`` were started in all.

    ``busy`` is the share of their time with an order, ``cores`` the CPU time per second of one
    worker, None if it was not read. ``line`` is the line of the dataset with most of their time.
    """

    at_once: int
    started: int
    busy: Share
    cores: float | None
    line: Line | None


_NOT_LOADING = frozenset({WAITING, STARTUP})


def take_loaders(context: FindingContext) -> Loaders | None:
    """Return the workers of the training together; None if there are none, or none was sampled."""
    processes = frozenset(row.id for row in context.workers)
    profile = context.profile_on(Selection(*context.time, processes, thread="MainThread"))
    if not processes or not profile.samples:
        return None

    def frame_of(stack: int) -> FrameRow | None:
        # The fork copied the parent's frames above the loop.
        frames = context.reader.frames_of(stack)
        loop = max(
            (depth for depth, frame in enumerate(frames) if means(frame, "worker loop")),
            default=len(frames),
        )
        return next(reversed(own_frames(frames[loop + 1 :])), None)

    return Loaders(
        at_once=context.workers_at_once,
        started=len(processes),
        busy=context.share_of(
            lambda stack: context.phases.of_stack(stack) not in _NOT_LOADING, profile
        ),
        cores=context.mean_of_workers("cpu_cores"),
        line=context.heaviest_line(frame_of=frame_of, profile=profile),
    )


# A worker that is busy for more of the time has its next order before it has completed the last.
_SATURATED = 0.8


def _waited_for(context: FindingContext) -> tuple[Share, Loaders | None]:
    """Return the share of waits for batches, and the workers, or None if the share is small."""
    share = _share(context, DATA_WAIT)
    is_loss = context.severity("input-bound-saturated", share.low) is not None
    return share, take_loaders(context) if is_loss else None


def saturated_workers(context: FindingContext) -> Finding | None:
    share, loaders = context.once(_waited_for)
    if loaders is None or loaders.busy.high < _SATURATED:
        return None
    limit, count = ceiling(context), loaders.at_once
    has_cores = limit is None or limit >= 1.1
    is_waiting = loaders.cores is not None and loaders.cores < 0.25 * loaders.busy.value
    # Workers needed to keep up with compute, capped by free cores and memory.
    needed = math.ceil(count * loaders.busy.value / (1 - min(share.value, 0.99)))
    needed = max(
        min(needed, _most_workers(context, math.inf if is_waiting else usable_cores(context))),
        count + 1,
    )
    return context.finding(
        "input-bound-saturated",
        share,
        loaders.busy.measure("workers busy"),
        gain=context.bound(share, limit if has_cores else None),
        cases={"full": not has_cores, "waiting": is_waiting},
        workers_are={1: "its only worker is", 2: "both workers are"}.get(
            count, f"all {count} workers are"
        ),
        busy=percent(loaders.busy.value),
        workers=plural(count, "worker"),
        at_loading=at(loaders.line),
        more=needed - count,
        needed=needed,
        cores=loaders.cores or 0.0,
    )


def _most_workers(context: FindingContext, cores: float | None) -> int:
    """Return how many workers find memory, and a core beside the main thread, if these are known.

    256 are enough for any machine.
    """
    used, total = context.mean("host_memory_used_bytes"), context.mean("host_memory_total_bytes")
    each = context.mean_of_workers("rss_bytes")
    limits = [256, (cores or math.inf) - 1]
    if used is not None and total is not None and each:
        limits.append(context.workers_at_once + (total - used) / each)
    return int(min(limits))


_MOST = 0.5


def idle_workers(context: FindingContext) -> Finding | None:
    share, loaders = context.once(_waited_for)
    if loaders is None or loaders.busy.high >= _SATURATED:
        return None
    cases = _cause_between(context, share, loaders)
    starts = "starts" in cases
    return context.finding(
        "input-bound-idle",
        share,
        loaders.busy.measure("workers busy"),
        surely=share.low if starts else share.low - _longest(context),
        # If cores are short, the main thread takes a finished batch late, because it waits for a
        # core, and so do the workers.
        severity=INFO if context.lacking >= share.low and not starts else None,
        line=partial(_line_of_starts, context) if starts else None,
        cases=cases,
        busy=percent(loaders.busy.value),
    )


def _longest(context: FindingContext) -> float:
    """Return the share of the longest wait: a single one, as for the first batch, is no loss."""
    waits_ns, longest_ns = Counter[int](), Counter[int]()  # by thread
    threads = context.selection.threads(context.reader)
    for row in context.reader.intervals(context.time, threads):
        is_wait = context.phases.of_stack(row.stack) == DATA_WAIT
        waits_ns[row.thread] = waits_ns[row.thread] + row.duration_ns if is_wait else 0
        longest_ns[row.thread] = max(longest_ns[row.thread], waits_ns[row.thread])
    return longest_ns.total() / (context.profile.total_ns or 1)


def _line_of_starts(context: FindingContext) -> Line | None:
    """Return the user's line that starts workers; another one may wait for their first batches."""

    def starts(stack: int) -> bool:
        return context.means(stack, "starts workers")

    return context.heaviest_line(starts) or context.line(DATA_WAIT)


def _cause_between(context: FindingContext, share: Share, loaders: Loaders) -> dict[str, bool]:
    """Return the case of what is slow between workers and main thread.

    No case holds if batches take unlike times.
    """
    if loaders.started >= 3 * loaders.at_once:
        return {"starts": True}
    threads = {row.name for row in context.reader.threads.values()}
    for name in (one for one in threads if function_means(one, "", "pins batches")):
        thread = Selection(*context.time, context.whole.processes, context.whole.rank, thread=name)
        pinning = context.profile_on(thread)
        if (
            context.share_of(lambda stack: context.phases.of_stack(stack) == COPY, pinning).value
            >= _MOST
        ):
            return {"pinning": True}

    def takes_a_batch(stack: int) -> bool:
        is_wait = context.phases.of_stack(stack) == DATA_WAIT
        return is_wait and not means(context.leaf(stack), "no batch yet")

    is_transfer = context.share_of(takes_a_batch).value >= _MOST * share.value
    # The main thread would take as long for the work of all workers.
    is_cheap = loaders.busy.value * loaders.at_once < _MOST * share.value
    return {"transfer": is_transfer and not is_cheap, "cheap": is_transfer and is_cheap}


_USED, _TOTAL = "shm_used_bytes", "shm_total_bytes"


def shared_memory(context: FindingContext) -> Finding | None:
    used, total = context.values(_USED), context.values(_TOTAL)
    if not context.workers or not used or not total:
        return None
    return context.finding("shared-memory", max(used) / total[-1], total=size(total[-1]))
