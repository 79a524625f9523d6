"""Rules on the phases of a step, and on functions of the user between them."""

from __future__ import annotations

import re
from collections import defaultdict

from profd.daemon.analyze.phases import (
    CHECKPOINT,
    COMPILE,
    DATA_LOAD,
    DATA_WAIT,
    EVALUATION,
    LOGGING,
    OPTIMIZER,
    STARTUP,
    STEP,
    SYNCHRONIZE,
)
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import PRICE, SEVERITIES, Finding, Measure, Scale, at, speeds_up
from profd.daemon.findings.sharerule import ShareRule
from profd.daemon.units import percent

checkpoints = ShareRule(
    rule="checkpoint-stalls",
    label="checkpoints",
    phase=CHECKPOINT,
    title="saving takes {share} of the time{at}: saving seldom or in the background {speeds_up}",
    cause="The main thread writes the checkpoint itself, and the training waits until it is on the disk.",
    remedy="Save less often{at}, or copy the state and write it in a thread or process of its own "
    "(torch.distributed.checkpoint.async_save).",
)

evaluations = ShareRule(
    rule="evaluation-share",
    label="evaluation",
    phase=EVALUATION,
    title="evaluating takes {share} of the time{at}: evaluating less {speeds_up}",
    cause="The model is evaluated often, or on much data, measured by how long it trains in between.",
    remedy="Evaluate less often{at}, on fewer samples, or in larger batches, as no gradients need room.",
    scale=PRICE,
)

logging_stalls = ShareRule(
    rule="logging-stalls",
    label="logging",
    phase=LOGGING,
    title="reporting takes {share} of the time{at}: reporting seldom {speeds_up}",
    cause="Progress bars, log lines or metrics are written in the main thread, between the steps.",
    remedy="Report every hundredth step only{at}.",
)

compilation = ShareRule(
    rule="compile-share",
    label="compilation",
    phase=COMPILE,
    title="compiling takes {share} of the time{at}: not compiling {speeds_up}",
    cause="Code is compiled when it is first called, and again for every new shape, type or Python value that it "
    "depends on.",
    remedy="See with TORCH_LOGS=recompiles what changes from call to call{at}; pad inputs to few shapes, or set "
    "dynamic=True in torch.compile. What is compiled once only gets less by itself in a longer run.",
    scale=PRICE,
)

_ON_GPU = ShareRule(
    rule="synchronization",
    label="synchronization",
    phase=SYNCHRONIZE,
    title="the main thread waits for the device for {share} of its time{at}: not waiting {speeds_up}",
    cause="A value that Python asks for (.item(), .cpu(), print, float) is there only when the device has done all "
    "that was started before; meanwhile nothing new is started.",
    remedy="Keep values on the device, and bring them over every hundredth step only{at}.",
)
_ON_CPU = ShareRule(
    rule="synchronization",
    label="synchronization",
    phase=SYNCHRONIZE,
    title="{share} of the time goes into values that are brought to Python{at}: avoiding that {speeds_up}",
    cause="Numbers are computed and taken out of tensors one by one (.item(), .tolist(), print), step by step.",
    remedy="Do it every hundredth step only{at}, and for many values at once.",
)


def synchronization(context: FindingContext) -> Finding | None:
    busy = context.utilization
    return _ON_CPU(context) if busy is None else _ON_GPU(context, busy)


# The optimizers that have a fused form.
_ONE_BY_ONE = frozenset({f"_single_tensor_{name}" for name in ("adam", "adamw", "adagrad", "sgd")})


_UNFUSED = ShareRule(
    rule="unfused-optimizer",
    label="optimizer",
    phase=OPTIMIZER,
    measure="tensor by tensor",
    title="updating the weights tensor by tensor takes {share} of a step{at}: doing it at once {speeds_up}",
    cause="For each tensor of weights a dozen operations are called one after the other, and each goes through all of "
    "its memory.",
    remedy="Make the optimizer with fused=True (or foreach=True, where its kind or version has no fused form for this "
    "device).",
    scale=PRICE,
)


def unfused_optimizer(context: FindingContext) -> Finding | None:
    def is_one_by_one(stack: int) -> bool:
        return any(
            frame.function in _ONE_BY_ONE and frame.module_path.startswith("torch/optim/")
            for frame in context.reader.frames_of(stack)
        )

    return _UNFUSED.of(context, context.share_of(context.profile, is_one_by_one))


# A batch of three times the size, which memory mostly allows, spares two thirds: from these shares on a tenth of a step
# is worth a warning, a third of it an alarm.
_OPTIMIZER_SCALE = Scale(info=0.10, warning=0.15, critical=0.5)
_ENLARGE = (
    "Enlarge the batch as far as memory allows (and the learning rate with it); the gain is one of samples. "
    "With batches as they are,"
)


def small_batches(context: FindingContext) -> Finding | None:
    """Return the finding where a GPU surely waits for Python, or without a GPU where the optimizer weighs heavily.

    There is no bound: larger batches also make operations more efficient, by an amount that no share of time shows.
    The remedy has the bound for batches as they are.
    """
    busy = context.utilization
    return _optimizer_bound(context) if busy is None else _dispatch_bound(context, busy)


def _optimizer_bound(context: FindingContext) -> Finding | None:
    share = context.share(OPTIMIZER)
    severity, slow = context.severity(share.low, _OPTIMIZER_SCALE), unfused_optimizer(context)
    if severity is None:
        return None
    if slow is not None:  # the optimizer is slow by itself, which is to be mended first
        severity = min(severity, slow.severity, key=SEVERITIES.index)
    line = context.line(OPTIMIZER)
    return context.finding(
        share.measure(OPTIMIZER),
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"the optimizer takes {percent(share.value)} of a step{at(line)}, whatever the size of the batch",
        cause="Each step updates all weights once, for however few samples.",
        remedy=f"{_ENLARGE} one step of the optimizer for several of them{at(line)} "
        f"{speeds_up(bound(context, share))}.",
        phase=OPTIMIZER,
        line=line,
    )


def _dispatch_bound(context: FindingContext, busy: float) -> Finding | None:
    share, idle = context.share(*STEP), 1 - busy
    removable = share.at_most(idle, idle, idle)
    if (severity := context.severity(removable.low, PRICE)) is None:
        return None
    line, gain = context.line(*STEP), bound(context, removable, removable.gain)
    return context.finding(
        share.measure("starting operations"),
        Measure("GPU busy", busy),
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"the GPU is busy {percent(busy)} while the main thread starts operations {percent(share.value)} of the "
        f"time{at(line)}",
        cause="Operations are over on the GPU before Python has started the next: it waits for Python, not for data.",
        remedy=f"{_ENLARGE} starting the same operations at once by CUDA graphs (torch.compile with "
        f'mode="reduce-overhead") {speeds_up(gain)}.',
        line=line,
        series=("gpu_utilization_share",),
    )


_LOOP = re.compile(r"^\s*(for|while)\b|\bfor\b.+\bin\b")
# Where lines call into C, which has no frames, the line of the loop itself is hardly ever seen.
_LEAST_OF_LOOP = 0.02
# Each has a rule of its own that says more.
_OTHER_RULES = frozenset({DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE})

_Key = tuple[str, str]


_HOT_FUNCTION = ShareRule(
    rule="hot-function",
    label="Python-bound",
    measure="{name} itself",
    title="{name} loops in Python for {share} of the time{at}: computing on whole tensors {speeds_up}",
    cause="Python goes through the elements one by one: each takes longer by far than the arithmetic does.",
    remedy="Replace the loop in {name}{at} by operations on whole tensors or arrays.",
)


def hot_function(context: FindingContext) -> Finding | None:
    name = _hottest(context)
    if name is None:
        return None

    def of_it(stack: int) -> bool:
        return _function_of(context, stack) == name

    return _HOT_FUNCTION.of(
        context,
        context.share_of(context.profile, of_it),
        line_of=lambda: context.heaviest_line(context.profile, of_it, context.leaf),
        name=name[0],
    )


def _hottest(context: FindingContext) -> _Key | None:
    own_ns: defaultdict[_Key, float] = defaultdict(float)
    looping_ns: defaultdict[_Key, float] = defaultdict(float)
    for stack, time_ns in context.profile.time_ns.items():
        key = _function_of(context, stack)
        if key is not None:
            own_ns[key] += time_ns
            looping_ns[key] += time_ns if _LOOP.search(context.leaf(stack).source or "") else 0.0
    looping = [key for key in own_ns if looping_ns[key] > _LEAST_OF_LOOP * own_ns[key]]
    return max(looping, key=own_ns.__getitem__, default=None)


def _function_of(context: FindingContext, stack: int) -> _Key | None:
    """Return the user's function at the leaf of a stack, and its file; None where another rule speaks of the stack."""
    frame = context.leaf(stack)
    is_other = frame.is_library or context.phases.of_stack(stack) in _OTHER_RULES
    return None if is_other else (frame.function, frame.file)
