"""Parts of a step that may be what the program is for, and may cost less: mostly remarks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from profd.daemon.analyze.phases import BACKWARD, FORWARD, LOSS, OPTIMIZER, OTHER, own_frame
from profd.daemon.findings.bounds import bound
from profd.daemon.findings.context import ALL_WORK, MOST, FindingContext, line_of
from profd.daemon.findings.environments import has_environments
from profd.daemon.findings.finding import Finding, Line
from profd.daemon.findings.kinds import MODULE, OwnFunction, own_functions, part_name, spoken
from profd.daemon.store.rows import FrameRow

_WITHOUT_GRADIENTS = ("torch/utils/_contextlib.py", "torch/autograd/grad_mode.py")
"""Where `@torch.no_grad()` and `@torch.inference_mode()` call what they decorate.

The latter is up to torch 1.13.
"""
_FITTING = ("sklearn/", "xgboost/", "lightgbm/", "catboost/", "river/")
"""Libraries that fit a model in one call: what the user's line does is all theirs."""
Key = TypeVar("Key", bound=tuple[object, ...])


def part_of_model(context: FindingContext) -> Finding | None:
    """Return a function of the user's that a model calls and that has much of the time.

    That time is in calls of no module.

    What it computes may not depend on the batch, or cost less in other words; a kind that is known
    says more of it.
    """

    def function_of(frames: Sequence[FrameRow], stack: int) -> OwnFunction | None:
        if context.phases.of_stack(stack) != FORWARD or context.kinds.is_no_pass(stack):
            return None
        until = next(
            (depth for depth, one in enumerate(reversed(frames)) if not one.is_library), len(frames)
        )
        own, below = len(frames) - until - 1, frames[len(frames) - until :]
        if any(one.module_path == MODULE for one in below) or MODULE not in {
            one.module_path for one in frames[:own]
        }:
            return None
        name = spoken(frames[own].function)
        is_forward = name.rpartition(".")[2].startswith(("forward", "_forward"))
        return (
            None
            if frames[own - 1].module_path == MODULE or is_forward
            else (name, frames[own].file)
        )

    function, stacks = _largest(context, function_of)
    if function is None:
        return None
    share = context.share_of(context.profile, stacks.__contains__)
    gain, line = partial(bound, context, share), partial(_line_of, context, stacks)
    return context.finding("part-of-model", share, gain=gain, line=line, function=function[0])


def forward_without_gradients(context: FindingContext) -> Finding | None:
    """Return the user's function that runs a model without gradients within a step.

    The step has others with gradients.

    A model that is not trained gives the same for the same data again.
    """

    def is_switched_off(one: FrameRow) -> bool:
        return (
            one.module_path in _WITHOUT_GRADIENTS
            or one.id in context.reader.entities.without_gradients
        )

    def function_of(frames: Sequence[FrameRow], stack: int) -> tuple[str, str, int] | None:
        if context.phases.of_stack(stack) not in (FORWARD, LOSS, OTHER):
            return None
        at = next(
            (depth for depth, one in enumerate(frames, 1) if is_switched_off(one)), len(frames)
        )
        if at == len(frames):
            return None
        if not frames[at].is_library:
            return spoken(frames[at].function), frames[at].file, 0
        # A block that calls a model itself. Libraries have gradients switched on, too.
        block = frames[at - 1]
        return None if block.is_library else (spoken(block.function), block.file, block.id)

    def runs_a_model(stacks: set[int]) -> bool:
        frames_of, time_ns = context.reader.frames_of, context.profile.time_ns
        within = (
            stack for stack in stacks if any(one.module_path == MODULE for one in frames_of(stack))
        )
        return (
            sum(time_ns[stack] for stack in within) >= sum(time_ns[stack] for stack in stacks) / 2
        )

    function, stacks = _largest(context, function_of, runs_a_model)
    if function is None or not context.share(BACKWARD).value:
        return None

    def line() -> Line:
        name, file, block = function
        if block:
            return line_of(context.reader.frames[block])
        frames = context.reader.frames_of(max(stacks, key=context.profile.time_ns.__getitem__))
        at = next(
            depth
            for depth, one in enumerate(frames)
            if (spoken(one.function), one.file) == (name, file)
        )
        return next(
            (line_of(one) for one in reversed(frames[:at]) if not one.is_library),
            line_of(frames[at]),
        )

    share = context.share_of(context.profile, stacks.__contains__)
    gain, cases = partial(bound, context, share), {"of-agent": has_environments(context)}
    return context.finding(
        "forward-without-gradients", share, gain=gain, cases=cases, line=line, function=function[0]
    )


_GENERATES = re.compile(r"^(transformers/generation|vllm)/")


def text_generation(context: FindingContext) -> Finding | None:
    """Return the time in which a model makes the texts that it is trained by.

    Methods with rewards have a model do that.
    """
    if not context.share(BACKWARD).value:
        return None

    def generates(stack: int) -> bool:
        frames = context.reader.frames_of(stack)
        return stack not in context.evaluating and any(
            _GENERATES.match(one.module_path) for one in frames
        )

    share = context.share_of(context.profile, generates)
    line = partial(context.heaviest_line, context.profile, generates)
    return context.finding("text-generation", share, gain=partial(bound, context, share), line=line)


def largest_part(context: FindingContext) -> Finding | None:
    """Return the user's function with most of the time.

    Time in modules, in torch's backward pass and in torch's optimizer does not count.

    It is for a run in which no rule finds a line to look at.
    """
    by_torch = context.by_torch

    def function_of(frames: Sequence[FrameRow], stack: int) -> OwnFunction | None:
        phase = context.phases.of_stack(stack)
        if (
            phase not in (FORWARD, LOSS, OTHER, BACKWARD, OPTIMIZER)
            or context.kinds.of_stack(stack) is not None
        ):
            return None
        if phase in (BACKWARD, OPTIMIZER) and stack in by_torch:
            return None
        if any(one.module_path == MODULE or one.module_path.startswith(_FITTING) for one in frames):
            return None
        return next(own_functions(frames), None)

    function, stacks = _largest(context, function_of)
    share = context.share_of(context.profile, stacks.__contains__)
    if function is None:
        return None
    line = context.line_of_call(stacks)

    def is_below(stack: int) -> bool:
        return line is not None and any(
            frame.id == line.frame for frame in context.reader.frames_of(stack)
        )

    # The loop itself is no part of it, and neither is a line that takes the whole step:
    # `svi.step(batch)`.
    if max(share.high, context.share_of(context.profile, is_below).high) > ALL_WORK:
        return None
    names = Counter[str]()
    for stack in stacks:
        names[part_name(context.reader.frames_of(stack))] += int(context.profile.time_ns[stack])
    name, time_ns = names.most_common(1)[0]
    name = name if time_ns >= MOST * names.total() else function[0]
    return context.finding(
        "largest-part", share, gain=partial(bound, context, share), line=lambda: line, function=name
    )


def _largest(
    context: FindingContext,
    function_of: Callable[[Sequence[FrameRow], int], Key | None],
    counts: Callable[[set[int]], bool] = bool,
) -> tuple[Key | None, set[int]]:
    """Return the function with most time whose stacks count, and these.

    ``function_of`` names that of a stack.
    """
    found: defaultdict[Key, set[int]] = defaultdict(set)
    for stack in context.profile.time_ns:
        key = function_of(context.reader.frames_of(stack), stack)
        if key is not None:
            found[key].add(stack)
    time_ns: Mapping[int, float] = context.profile.time_ns
    possible = (key for key, stacks in found.items() if counts(stacks))
    function = max(
        possible, key=lambda key: sum(time_ns[stack] for stack in found[key]), default=None
    )
    return (None, set()) if function is None else (function, found[function])


def _line_of(context: FindingContext, stacks: set[int]) -> Line | None:
    def frame_of(stack: int) -> FrameRow | None:
        return own_frame(context.reader.frames_of(stack))

    return context.heaviest_line(context.profile, stacks.__contains__, frame_of)
