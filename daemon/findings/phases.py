"""Rules on the phases of a step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from profd.daemon.analyze.phases import EVALUATION, OPTIMIZER, OTHER, STEP
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import SEVERITIES, Finding, Measure
from profd.daemon.findings.texts import table
from profd.daemon.units import percent


def of_phase(name: str, context: FindingContext, *, cases: Mapping[str, bool] = {}) -> Finding | None:
    """Return the finding ``name``, which its phase decides."""
    share = context.share(table().finding[name].phase or OTHER)
    return context.finding(name, share, gain=lambda: bound(context, share), cases=cases)


checkpoints = partial(of_phase, "checkpoint-stalls")
logging_stalls = partial(of_phase, "logging-stalls")
compilation = partial(of_phase, "compile-share")


def evaluations(context: FindingContext) -> Finding | None:
    if not context.trains:  # a program that only evaluates is there for it
        return None
    stacks, share = context.evaluating, context.share_of(context.profile, context.evaluating.__contains__)
    line_of = partial(context.phases.user_line, within=EVALUATION)
    line = partial(context.heaviest_line, context.profile, stacks.__contains__, line_of)
    # With batches in it, that are data by their phase, no one phase has all of these stacks.
    is_phase = share.value == context.share(EVALUATION).value
    selection = None if is_phase else context.selection
    return context.finding(
        "evaluation-share", share, gain=partial(bound, context, share), line=line, selection=selection
    )


def synchronization(context: FindingContext) -> Finding | None:
    return of_phase("synchronization", context, cases={"on-cpu": context.uses_gpu is False})


# The optimizers that have a fused form: without it they go tensor by tensor, or on a GPU operation by operation.
_FUSIBLE = ("adam", "adamw", "adagrad", "sgd")


def unfused_optimizer(context: FindingContext) -> Finding | None:
    for form in ("single", "multi") if context.uses_gpu else ("single",):
        names = {f"_{form}_tensor_{name}" for name in _FUSIBLE}
        seen = ((stack, one) for stack in context.profile.time_ns for one in context.reader.frames_of(stack))
        stacks = {stack for stack, one in seen if one.function in names and one.module_path.startswith("torch/optim/")}
        share = context.share_of(context.profile, stacks.__contains__)
        cases = {"foreach": form == "multi"}
        if found := context.finding("unfused-optimizer", share, gain=partial(bound, context, share), cases=cases):
            return found
    return None


def small_batches(context: FindingContext) -> Finding | None:
    """Return the finding where a GPU surely waits for Python, or without a GPU where the optimizer weighs heavily.

    There is no bound: larger batches also make operations more efficient, by an amount that no share of time shows.
    The remedy has the bound for batches as they are.
    """
    busy = context.utilization
    if busy is None:
        return _of_heavy_optimizer(context) if context.uses_gpu is False else None
    share = context.share(*STEP)
    gain, line = partial(bound, context, share, share.gain), partial(context.line, *STEP)
    also = Measure("GPU busy", busy)
    return context.finding("small-batches", share, also, gain=gain, line=line, busy=percent(busy))


def _of_heavy_optimizer(context: FindingContext) -> Finding | None:
    if not any(context.phases.of_stack(stack) in STEP for stack in context.by_torch):
        return None  # an optimizer of the user's own on arrays may be as slow for other reasons

    def is_as_large(stack: int) -> bool:  # sparse gradients have as many rows as the batch has
        modules = {one.module_path for one in context.reader.frames_of(stack)}
        return context.phases.of_stack(stack) == OPTIMIZER and "torch/optim/sparse_adam.py" not in modules

    share = context.share_of(context.profile, is_as_large)
    severity, slow = context.severity("small-batches-on-cpu", share.low), context.once(unfused_optimizer)
    if severity is None:
        return None
    if slow is not None:  # the optimizer is slow by itself, which is to be mended first
        severity = min(severity, slow.severity, key=SEVERITIES.index)
    return context.finding("small-batches-on-cpu", share, severity=severity, gain=bound(context, share))
