"""Rules on the phases of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from profd.daemon.analyze.phases import (
    COMPILE,
    EVALUATION,
    OPTIMIZER,
    OTHER,
    STEP,
    SYNCHRONIZE,
    own_frame,
)
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, Finding, Measure
from profd.daemon.findings.overhead import overhead
from profd.daemon.findings.texts import table
from profd.daemon.findings.traces import of_waits
from profd.daemon.frameworks.frames import Meaning
from profd.daemon.store.rows import FrameRow
from profd.daemon.units import percent

_COMPILERS: tuple[Meaning, ...] = ("jax", "numba")
"""Packages with a compiler for which torch's advice is no help."""


def of_phase(name: str, context: FindingContext) -> Finding | None:
    """Return the finding ``name``, which its phase decides."""
    share = context.share(table().finding[name].phase or OTHER)
    return context.finding(name, share)


checkpoints = partial(of_phase, "checkpoint-stalls")
logging_stalls = partial(of_phase, "logging-stalls")


def compilation(context: FindingContext) -> Finding | None:
    """Return the finding on compilers, with what helps against the one that takes most."""

    def compiler_of(stack: int) -> str | None:
        if context.phases.of_stack(stack) != COMPILE:
            return None
        return next((one for one in _COMPILERS if context.means(stack, one)), "")

    compiler = next(iter(context.profile.time_by(compiler_of)), "")
    cases = {"jax": compiler == "jax", "numba": compiler == "numba"}
    return context.finding("compile-share", context.share(COMPILE), cases=cases)


def of_stacks(
    name: str,
    context: FindingContext,
    holds: Callable[[int], bool],
    *,
    frame_of: Callable[[int], FrameRow | None] | None = None,
    cases: Mapping[str, bool] = {},
) -> Finding | None:
    """Return the finding ``name``, decided by the stacks that ``holds`` selects, not by a phase."""
    share = context.share_of(holds)
    is_phase = share.value == context.share(table().finding[name].phase or OTHER).value
    return context.finding(
        name,
        share,
        line=partial(context.heaviest_line, holds, frame_of),
        cases=cases,
        selection=None if is_phase else context.selection,
    )


def sampler(context: FindingContext) -> Finding | None:
    """Return the time in which the main thread asks a sampler which samples are in a batch."""

    def draws(stack: int) -> bool:
        return context.means(stack, "draws indices") and stack not in context.evaluating

    def frame_of(stack: int) -> FrameRow | None:
        return own_frame(context.reader.frames_of(stack))

    return of_stacks("input-bound-sampler", context, draws, frame_of=frame_of)


def evaluations(context: FindingContext) -> Finding | None:
    if not context.trains:  # a program that only evaluates is there for it
        return None
    line_of = partial(context.phases.user_line, within=EVALUATION)
    return of_stacks("evaluation-share", context, context.evaluating.__contains__, frame_of=line_of)


def synchronization(context: FindingContext) -> Finding | None:
    """Return the finding on values that Python asks for, or on calls that wait for the GPU.

    Without a GPU ``overhead`` may have the line of the values.
    """
    is_on_cpu, known = context.uses_gpu is False, context.once(overhead)
    line = known.evidence.line if is_on_cpu and known else None

    def holds(stack: int) -> bool:
        is_known = line and any(frame.id == line.frame for frame in context.reader.frames_of(stack))
        return context.phases.of_stack(stack) == SYNCHRONIZE and not is_known

    return of_stacks("synchronization", context, holds, cases={"on-cpu": is_on_cpu}) or of_waits(
        "implicit-synchronization", context
    )


# Without the fused form an optimizer goes tensor by tensor, or on a GPU operation by operation.
_UNFUSED: tuple[Meaning, ...] = ("single-tensor update", "multi-tensor update")


def unfused_optimizer(context: FindingContext) -> Finding | None:
    for form in _UNFUSED if context.uses_gpu else _UNFUSED[:1]:
        share = context.share_of(context.stacks_of(form).__contains__)
        cases = {"foreach": form == "multi-tensor update"}
        if found := context.finding("unfused-optimizer", share, cases=cases):
            return found
    return None


def small_batches(context: FindingContext) -> Finding | None:
    """Return the finding if a GPU surely waits for Python; without a GPU, if the optimizer is long.

    There is no bound: larger batches also make operations more efficient, by an amount that no
    share of time shows. The remedy has the bound for batches as they are.
    """
    busy = context.utilization
    if busy is None:
        return _of_heavy_optimizer(context) if context.uses_gpu is False else None
    also, line = Measure("GPU busy", busy), partial(context.line, *STEP)
    gain = partial(context.bound, share := context.share(*STEP), share.gain)
    return context.finding("small-batches", share, also, gain=gain, line=line, busy=percent(busy))


def _of_heavy_optimizer(context: FindingContext) -> Finding | None:
    if not context.steps_by_torch:
        return None  # an optimizer of the user's own on arrays may be as slow for other reasons

    def is_as_large(stack: int) -> bool:  # sparse gradients have as many rows as the batch has
        is_sparse = context.means(stack, "sparse update")
        return context.phases.of_stack(stack) == OPTIMIZER and not is_sparse

    share = context.share_of(is_as_large)
    if context.severity("small-batches-on-cpu", share.low) is None:
        return None
    # If the optimizer is slow by itself, that is to be mended first.
    severity = INFO if context.once(unfused_optimizer) is not None else None
    return context.finding(
        "small-batches-on-cpu", share, severity=severity, gain=context.bound(share)
    )
