"""Rules on the phases of a step."""

from __future__ import annotations

from functools import partial

from profd.daemon.analyze.phases import (
    BACKWARD,
    COMPILE,
    EVALUATION,
    FORWARD,
    INFERENCE,
    LOSS,
    OPTIMIZER,
    OTHER,
    STEP,
    SYNCHRONIZE,
)
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, WARNING, Finding, Measure
from profd.daemon.findings.linetree import of_stacks
from profd.daemon.findings.overhead import beside_optimizer, largest_loss, overhead
from profd.daemon.findings.texts import table
from profd.daemon.findings.traces import of_waits
from profd.daemon.frameworks.frames import Meaning
from profd.daemon.units import percent

_FEWEST_PROOFS = 3
_COMPILERS: tuple[Meaning, ...] = ("jax", "numba")
"""Packages with a compiler for which torch's advice is no help."""


def of_phase(name: str, context: FindingContext) -> Finding | None:
    """Return the finding ``name``, which its phase decides."""
    return of_stacks(name, context, context.stacks_in(table().finding[name].phase or OTHER))


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


def anomaly_detection(context: FindingContext) -> Finding | None:
    """Return the finding on autograd's mode for debugging, which a few stacks prove.

    Most of what it costs has no Python frame: it looks for NaN in each gradient.
    """
    keeping = context.share_of(lambda stack: context.means(stack, "anomaly detection"))
    if (keeping.samples or 0) < _FEWEST_PROOFS:
        return None
    return context.finding(
        "anomaly-detection",
        keeping,
        severity=WARNING,
        line=partial(context.line, BACKWARD),
    )


# Backward passes took 1 to 3 times as long as the forward passes of the same graphs.
_USUAL_BACKWARD = 3.0


def graphs_again(context: FindingContext) -> Finding | None:
    """Return the finding on backward passes through graphs that others have gone through.

    To keep a graph costs no time by itself. They surely go through it again if they take longer
    than one backward pass of each forward pass would.
    """
    line = context.line(BACKWARD)
    if context.uses_gpu is not False or not line or "retain_graph=True" not in (line.source or ""):
        return None
    share, forward = context.share(BACKWARD), context.share(FORWARD, LOSS).value
    spared = share.plus(-forward)
    return context.finding(
        "graphs-again",
        share,
        surely=share.low - _USUAL_BACKWARD * forward,
        gain=context.bound(spared, spared.gain),
    )


def beside_steps(name: str, phase: str, context: FindingContext) -> Finding | None:
    """Return the finding ``name`` on a training that also runs the model in a phase beside its own.

    A program that does nothing else is there for it.
    """
    if not context.trains:
        return None
    line_of = partial(context.phases.user_line, within=phase)
    stacks = context.within(phase) - context.stacks_of("generates")  # which has a rule of its own
    return of_stacks(name, context, stacks, frame_of=line_of)


def sampler(context: FindingContext) -> Finding | None:
    """Return the time in which the main thread asks a sampler which samples are in a batch."""
    stacks = context.stacks_of("draws indices") - context.evaluating
    return of_stacks("input-bound-sampler", context, stacks, frame_of=context.own_frame)


evaluations = partial(beside_steps, "evaluation-share", EVALUATION)
inference = partial(beside_steps, "inference-share", INFERENCE)


def synchronization(context: FindingContext) -> Finding | None:
    """Return the finding on values that Python asks for, or on calls that wait for the GPU.

    Without a GPU ``overhead`` may count them with the call that they are in.
    """
    is_on_cpu, stacks = context.uses_gpu is False, context.stacks_in(SYNCHRONIZE)
    loss = context.once(largest_loss)
    if is_on_cpu and loss and context.once(overhead):
        stacks -= loss.stacks
    cases = {"on-cpu": is_on_cpu}
    return of_stacks(
        "synchronization", context, stacks, cases=cases, is_alone=not is_on_cpu
    ) or of_waits("implicit-synchronization", context)


# Without the fused form an optimizer goes tensor by tensor, or on a GPU operation by operation.
_UNFUSED: tuple[Meaning, ...] = ("single-tensor update", "multi-tensor update")


def unfused_optimizer(context: FindingContext) -> Finding | None:
    for form in _UNFUSED if context.uses_gpu else _UNFUSED[:1]:
        share = context.share_of(context.stacks_of(form).__contains__)
        cases = {"foreach": form == "multi-tensor update"}
        if found := context.finding("unfused-optimizer", share, cases=cases):
            return found
    return own_optimizer(context)


def own_optimizer(context: FindingContext) -> Finding | None:
    """Return the finding on an optimizer of the user's own that updates tensors of torch."""
    if not context.steps_by_torch:
        return None
    return of_stacks("own-optimizer", context, _updates(context, by_hand=True))


def _updates(context: FindingContext, *, by_hand: bool) -> set[int]:
    """Return the stacks of the step of an optimizer, the user's own or a library's."""
    stacks = context.stacks_in(OPTIMIZER) - context.once(beside_optimizer)
    return {stack for stack in stacks if context.phases.is_by_hand(stack) == by_hand}


def small_batches(context: FindingContext) -> Finding | None:
    """Return the finding if a GPU surely waits for Python; without a GPU, if the optimizer is long.

    There is no bound: larger batches also make operations more efficient, by an amount that no
    share of time shows. The remedy has the bound for batches as they are.
    """
    busy = context.utilization
    if busy is None:
        return _of_heavy_optimizer(context) if context.uses_gpu is False else None
    share = context.share(*STEP)
    return context.finding(
        "small-batches",
        share,
        Measure("GPU busy", busy),
        gain=partial(context.bound, share, share.gain),
        line=partial(context.line, *STEP),
        busy=percent(busy),
    )


def _of_heavy_optimizer(context: FindingContext) -> Finding | None:
    if not context.steps_by_torch:
        return None
    # Sparse gradients have as many rows as the batch has.
    stacks = _updates(context, by_hand=False) - context.stacks_of("sparse update")
    share = context.share_of(stacks.__contains__)
    if context.severity("small-batches-on-cpu", share.low) is None:
        return None
    # If the optimizer is slow by itself, that is to be mended first.
    return context.finding(
        "small-batches-on-cpu",
        share,
        severity=INFO if context.once(unfused_optimizer) is not None else None,
        gain=context.bound(share),
        line=partial(context.heaviest_line, stacks.__contains__),
    )
