"""Rules on the phases of a step, and on functions of the user between them.

There is no bound: larger batches also make operations more efficient, by much and by what no share of time tells.
What is known is the bound of who leaves the batches as they are, and the remedy has that.
"""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

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
from profd.daemon.findings.context import FindingContext, Share, utilization
from profd.daemon.findings.finding import LOSS, PRICE, SEVERITIES, Finding, Measure, Scale, at, at_most, severity_of
from profd.daemon.store.rows import FrameRow
from profd.daemon.units import percent


class PhaseLoss(msgspec.Struct, frozen=True):
    """A phase that takes too much.

    ``title``, ``cause`` and ``remedy`` may name {share}, {at} (the line) and {gain}.
    """

    rule: str
    label: str
    phase: str
    title: str
    cause: str
    remedy: str
    scale: Scale = LOSS

    def __call__(self, case: FindingContext) -> Finding | None:
        """Return the finding where the phase surely takes its part."""
        share = case.share(self.phase)
        severity = severity_of(share.low, case.profile.total_samples, self.scale)
        return None if severity is None else self.finding(case, share, severity)

    def finding(self, case: FindingContext, share: Share, severity: str, limit: float | None = None) -> Finding:
        """Return the finding of a share; ``limit`` where something else limits the gain."""
        line = case.line(self.phase)
        gain = bound(case, share, limit)
        words = {"share": percent(share.value), "at": at(line), "gain": at_most(gain)}
        return Finding(
            rule=self.rule,
            severity=severity,
            label=self.label,
            title=f"{self.label}: {self.title.format(**words)}",
            cause=self.cause.format(**words),
            remedy=self.remedy.format(**words),
            gain_bound=gain,
            evidence=case.evidence(share.measure(self.phase), phase=self.phase, line=line),
            page=self.rule,
        )


checkpoints = PhaseLoss(
    rule="checkpoint-stalls",
    label="checkpoints",
    phase=CHECKPOINT,
    title="saving takes {share} of the time{at}: saving seldom or in the background brings {gain}",
    cause="The main thread writes the checkpoint itself, and the training waits until it is on the disk.",
    remedy="Save less often{at}, or copy the state and write it in a thread or process of its own "
    "(torch.distributed.checkpoint.async_save).",
)


evaluations = PhaseLoss(
    rule="evaluation-share",
    label="evaluation",
    phase=EVALUATION,
    title="evaluating takes {share} of the time{at}: less of it brings {gain}",
    cause="The model is evaluated often, or on much data, measured by how long it trains in between.",
    remedy="Evaluate less often{at}, on fewer samples, or in larger batches, as no gradients need room.",
    scale=PRICE,
)


logging_stalls = PhaseLoss(
    rule="logging-stalls",
    label="logging",
    phase=LOGGING,
    title="reporting takes {share} of the time{at}: reporting seldom brings {gain}",
    cause="Progress bars, log lines or metrics are written in the main thread, between the steps.",
    remedy="Report every hundredth step only{at}.",
)


compilation = PhaseLoss(
    rule="compile-share",
    label="compilation",
    phase=COMPILE,
    title="compiling takes {share} of the time{at}: none of it brings {gain}",
    cause="Code is compiled when it is first called, and again for every new shape, type or Python value that it "
    "depends on.",
    remedy="See with TORCH_LOGS=recompiles what changes from call to call{at}; pad inputs to few shapes, or set "
    "dynamic=True in torch.compile. What is compiled once only gets less by itself in a longer run.",
    scale=PRICE,
)


_ON_GPU = PhaseLoss(
    rule="synchronization",
    label="synchronization",
    phase=SYNCHRONIZE,
    title="the main thread waits for the device for {share} of its time{at}: no wait brings {gain}",
    cause="A value that Python asks for (.item(), .cpu(), print, float) is there only when the device has done all "
    "that was started before; meanwhile nothing new is started.",
    remedy="Keep values on the device, and bring them over every hundredth step only{at}.",
)
_ON_CPU = PhaseLoss(
    rule="synchronization",
    label="synchronization",
    phase=SYNCHRONIZE,
    title="{share} of the time goes into values that are brought to Python{at}: without them {gain}",
    cause="Numbers are computed and taken out of tensors one by one (.item(), .tolist(), print), step by step.",
    remedy="Do it every hundredth step only{at}, and for many values at once.",
)


def synchronization(case: FindingContext) -> Finding | None:
    """Return the finding where the main thread surely waits, and the device is not simply busy all the time."""
    share = case.share(_ON_GPU.phase)
    busy = utilization(case)
    # Steps take at least as long as the device works for them.
    surely = share.low if busy is None else min(share.low, 1 - busy)
    severity = severity_of(surely, case.profile.total_samples)
    if severity is None:
        return None
    if busy is None:
        return _ON_CPU.finding(case, share, severity)
    return _ON_GPU.finding(case, share, severity, limit=1 / busy if busy else None)


# Of those that have a fused form.
_ONE_BY_ONE = frozenset({f"_single_tensor_{name}" for name in ("adam", "adamw", "adagrad", "sgd")})


def unfused_optimizer(case: FindingContext) -> Finding | None:
    """Return the finding where an optimizer that could be fused surely takes its part of a step."""
    share = case.share_of(case.profile, lambda stack: _is_one_by_one(case, stack))
    severity = severity_of(share.low, case.profile.total_samples, PRICE)
    if severity is None:
        return None
    line, gain = case.line(OPTIMIZER), bound(case, share)
    return Finding(
        rule="unfused-optimizer",
        severity=severity,
        label="optimizer",
        title=f"optimizer: updating the weights tensor by tensor takes {percent(share.value)} of a step{at(line)}: "
        f"doing it at once brings {at_most(gain)}",
        cause="For each tensor of weights a dozen operations are called one after the other, and each goes through "
        "all of its memory.",
        remedy="Make the optimizer with fused=True (or foreach=True, where its kind or version has no fused form for "
        "this device).",
        gain_bound=gain,
        evidence=case.evidence(share.measure("tensor by tensor"), phase=OPTIMIZER, line=line),
        page="unfused-optimizer",
    )


def _is_one_by_one(case: FindingContext, stack: int) -> bool:
    return any(
        frame.function in _ONE_BY_ONE and frame.module_path.startswith("torch/optim/")
        for frame in case.reader.frames_of(stack)
    )


# A batch of three times the size, which memory mostly allows, spares two thirds: from these shares on a tenth of a step
# is worth a warning, a third of it an alarm.
_OPTIMIZER_SCALE = Scale(told=0.10, warned=0.15, critical=0.5)
_ENLARGE = "Enlarge the batch as far as memory allows (and the learning rate with it); the gain is one of samples."


def small_batches(case: FindingContext) -> Finding | None:
    """Return the finding where a GPU surely waits for Python, or without a GPU where the optimizer weighs heavily."""
    busy = utilization(case)
    return _optimizer_bound(case) if busy is None else _dispatch_bound(case, busy)


def _optimizer_bound(case: FindingContext) -> Finding | None:
    share = case.share(OPTIMIZER)
    severity = _severity(case, share)
    if severity is None:
        return None
    line = case.line(OPTIMIZER)
    return Finding(
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"small batches: the optimizer takes {percent(share.value)} of a step{at(line)}, whatever the size of "
        "the batch",
        cause="Each step updates all weights once, for however few samples.",
        remedy=f"{_ENLARGE} With batches as they are, one step of the optimizer for several of "
        f"them{at(line)} brings {at_most(bound(case, share))}.",
        gain_bound=None,
        evidence=case.evidence(share.measure(OPTIMIZER), phase=OPTIMIZER, line=line),
        page="small-batches",
    )


def _severity(case: FindingContext, share: Share) -> str | None:
    """Return how grave it is, by what a larger batch spares.

    No more than that the optimizer is slow by itself, which is to be mended first.
    """
    severity, slow = severity_of(share.low, case.profile.total_samples, _OPTIMIZER_SCALE), unfused_optimizer(case)
    return severity if severity is None or slow is None else min(severity, slow.severity, key=SEVERITIES.index)


def _dispatch_bound(case: FindingContext, busy: float) -> Finding | None:
    share = case.share(*STEP)
    idle = 1 - busy
    removable = Share(min(share.value, idle), min(share.low, idle), min(share.high, idle), share.samples)
    severity = severity_of(removable.low, case.profile.total_samples, PRICE)
    if severity is None:
        return None
    line, gain = case.line(*STEP), bound(case, removable, removable.gain)
    return Finding(
        rule="small-batches",
        severity=severity,
        label="small batches",
        title=f"small batches: the GPU is busy {percent(busy)} while the main thread starts operations "
        f"{percent(share.value)} of the time{at(line)}",
        cause="Operations are over on the GPU before Python has started the next: it waits for Python, not for data.",
        remedy=f"{_ENLARGE} With batches as they are, CUDA graphs (torch.compile with "
        f'mode="reduce-overhead") start the same operations at once, and bring {at_most(gain)}.',
        gain_bound=None,
        evidence=case.evidence(
            share.measure("starting operations"),
            Measure("GPU busy", busy),
            line=line,
            series=("gpu_utilization_share",),
        ),
        page="small-batches",
    )


_LOOP = re.compile(r"^\s*(for|while)\b|\bfor\b.+\bin\b")
# Where lines call into C, which has no frames, the line of the loop itself is hardly ever seen.
_LEAST_OF_LOOP = 0.02
# Each has a rule of its own that says more.
_TOLD_ELSEWHERE = frozenset({DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE})

_Key = tuple[str, str]


class _Function(msgspec.Struct):
    own_ns: float = 0.0
    looping_ns: float = 0.0


def hot_function(case: FindingContext) -> Finding | None:
    """Return the finding where one function surely takes its part by itself, and is seen at the line of a loop."""
    name = _hottest(case)
    if name is None:
        return None

    def of_it(stack: int) -> bool:
        return _counts(case, stack) and _key(_leaf(case, stack)) == name

    share = case.share_of(case.profile, of_it)
    severity = severity_of(share.low, case.profile.total_samples)
    if severity is None:
        return None
    line = case.heaviest_line(case.profile, of_it, lambda stack: _leaf(case, stack))
    gain = bound(case, share)
    return Finding(
        rule="hot-function",
        severity=severity,
        label="Python-bound",
        title=f"Python-bound: {name[0]} loops in Python for {percent(share.value)} of the time{at(line)}: "
        f"whole tensors at once bring {at_most(gain)}",
        cause="Python goes through the elements one by one: each takes longer by far than the arithmetic does.",
        remedy=f"Replace the loop in {name[0]}{at(line)} by operations on whole tensors or arrays.",
        gain_bound=gain,
        evidence=case.evidence(share.measure(f"{name[0]} itself"), line=line),
        page="hot-function",
    )


def _hottest(case: FindingContext) -> _Key | None:
    """Return the function of the user's with most time of its own, of those that loop."""
    found: defaultdict[_Key, _Function] = defaultdict(_Function)
    for stack, time_ns in case.profile.time_ns.items():
        if _counts(case, stack):
            frame = _leaf(case, stack)
            function = found[_key(frame)]
            function.own_ns += time_ns
            function.looping_ns += time_ns if _LOOP.search(frame.source or "") else 0.0
    looping = [key for key, one in found.items() if one.looping_ns > _LEAST_OF_LOOP * one.own_ns]
    return max(looping, key=lambda key: found[key].own_ns, default=None)


def _counts(case: FindingContext, stack: int) -> bool:
    return not _leaf(case, stack).is_library and case.phases.of_stack(stack) not in _TOLD_ELSEWHERE


def _leaf(case: FindingContext, stack: int) -> FrameRow:
    return case.reader.frames[case.reader.stacks[stack].frame]


def _key(frame: FrameRow) -> _Key:
    return frame.function, frame.file
