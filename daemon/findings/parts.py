"""Parts of a step that may be what the program is for, and may cost less: mostly remarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from profd.daemon.analyze.phases import (
    BACKWARD,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    own_frame,
    own_frames,
)
from profd.daemon.findings.context import MOST, NEARLY_ALL, FindingContext, line_of
from profd.daemon.findings.environments import has_environments
from profd.daemon.findings.finding import Finding, Line
from profd.daemon.findings.kinds import OwnFunction, own_functions, part_name, spoken
from profd.daemon.findings.linetree import line_of_call
from profd.daemon.findings.phases import of_stacks
from profd.daemon.findings.rule import hidden_if
from profd.daemon.frameworks.frames import means
from profd.daemon.store.rows import FrameRow

Key = TypeVar("Key", bound=tuple[object, ...])


def part_of_model(context: FindingContext) -> Finding | None:
    """Return a function of the user's that a model calls and that takes much time in no module.

    Its result may not depend on the batch, or may cost less in other words. Stacks of a known kind
    do not count: the kind says more of them.
    """

    def function_of(frames: Sequence[FrameRow], stack: int) -> OwnFunction | None:
        if context.phases.of_stack(stack) != FORWARD or context.kinds.is_no_pass(stack):
            return None
        own = max((depth for depth, one in enumerate(frames) if not one.is_library), default=-1)
        modules = [depth for depth, one in enumerate(frames) if means(one, "module")]
        # A model has to call it, no module below it, and not as the forward function of a module.
        if not modules or modules[-1] > own or modules[-1] == own - 1:
            return None
        name = spoken(frames[own].function)
        is_forward = name.rpartition(".")[2].startswith(("forward", "_forward"))
        return None if is_forward else (name, frames[own].file)

    function, stacks = _largest(context, function_of)
    if function is None:
        return None
    holds = stacks.__contains__

    def own_line(stack: int) -> FrameRow | None:
        return own_frame(context.reader.frames_of(stack))

    share, line = context.share_of(holds), partial(context.heaviest_line, holds, own_line)
    return context.finding("part-of-model", share, line=line, function=function[0])


class _Runner(NamedTuple):
    """What runs code without gradients: a function, or the line ``frame`` of a block within it."""

    name: str
    file: str
    frame: int | None = None


def _generates_text(unlearned: Finding, other: Finding) -> bool:
    """Say whether half of a pass without gradients generates text: then it is mostly that."""
    return other.rule == "text-generation" and other.measured >= unlearned.measured / 2


@hidden_if(_generates_text)
def forward_without_gradients(context: FindingContext) -> Finding | None:
    """Return the user's function that runs a model without gradients within a step.

    Other parts of the step have gradients. A model that is not trained gives the same result for
    the same data again.
    """
    if not context.share(BACKWARD).value:
        return None
    runner, stacks = _largest(
        context, partial(_without_gradients, context), partial(_runs_a_model, context)
    )
    if runner is None:
        return None
    return context.finding(
        "forward-without-gradients",
        context.share_of(stacks.__contains__),
        cases={"of-agent": has_environments(context)},
        line=partial(_line_of_runner, context, runner, stacks),
        function=runner.name,
    )


def _without_gradients(
    context: FindingContext, frames: Sequence[FrameRow], stack: int
) -> _Runner | None:
    if context.phases.of_stack(stack) not in (FORWARD, LOSS, OTHER):
        return None
    switches = (depth for depth, one in enumerate(frames, 1) if _switches_off(context, one))
    at = next(switches, len(frames))
    if at == len(frames):
        return None
    if not frames[at].is_library:
        return _Runner(spoken(frames[at].function), frames[at].file)
    # A block that calls a model itself. Libraries have gradients switched on, too.
    block = frames[at - 1]
    return None if block.is_library else _Runner(spoken(block.function), block.file, block.id)


def _switches_off(context: FindingContext, frame: FrameRow) -> bool:
    is_block = frame.id in context.reader.entities.without_gradients
    return is_block or means(frame, "no gradients")


def _runs_a_model(context: FindingContext, stacks: set[int]) -> bool:
    """Say whether at least half of the time of some stacks is in modules."""
    in_modules = (stack for stack in stacks if context.means(stack, "module"))
    return context.profile.spent_ns(in_modules) >= context.profile.spent_ns(stacks) / 2


def _line_of_runner(context: FindingContext, runner: _Runner, stacks: set[int]) -> Line:
    """Return the line of the block, or the user's line that calls the function."""
    if runner.frame is not None:
        return line_of(context.reader.frames[runner.frame])
    frames = context.reader.frames_of(max(stacks, key=context.profile.time_ns.__getitem__))
    function = runner.name, runner.file
    at = next(
        depth for depth, one in enumerate(frames) if (spoken(one.function), one.file) == function
    )
    callers = own_frames(frames[:at]) or [frames[at]]
    return line_of(callers[-1])


def text_generation(context: FindingContext) -> Finding | None:
    """Return the time in which a model generates the texts that it trains on.

    Methods with rewards do that.
    """
    if not context.share(BACKWARD).value:
        return None

    def generates(stack: int) -> bool:
        return stack not in context.evaluating and context.means(stack, "generates")

    return of_stacks("text-generation", context, generates)


@hidden_if(lambda _, other: other.evidence.line is not None)
def largest_part(context: FindingContext) -> Finding | None:
    """Return the user's function with most of the time, for a run without any other line to see.

    Time in modules, in torch's backward pass and in torch's optimizer does not count.
    """

    def function_of(frames: Sequence[FrameRow], stack: int) -> OwnFunction | None:
        phase = context.phases.of_stack(stack)
        if (
            phase not in (FORWARD, LOSS, OTHER, BACKWARD, OPTIMIZER)
            or context.kinds.of_stack(stack) is not None
        ):
            return None
        if phase in (BACKWARD, OPTIMIZER) and context.means(stack, "torch"):
            return None
        if context.means(stack, "module", "fits"):
            return None
        return next(own_functions(frames), None)

    function, stacks = _largest(context, function_of)
    if function is None:
        return None
    share = context.share_of(stacks.__contains__)
    line = line_of_call(context, stacks)

    def is_below(stack: int) -> bool:
        return line is not None and any(
            frame.id == line.frame for frame in context.reader.frames_of(stack)
        )

    # The loop itself is no part of it, and neither is a line that takes the whole step:
    # `svi.step(batch)`.
    if max(share.high, context.share_of(is_below).high) > NEARLY_ALL:
        return None
    names = context.profile.time_by(
        lambda stack: part_name(context.reader.frames_of(stack)), stacks
    )
    name, time_ns = next(iter(names.items()))
    name = name if time_ns >= MOST * context.profile.spent_ns(stacks) else function[0]
    return context.finding("largest-part", share, line=lambda: line, function=name)


def _largest(
    context: FindingContext,
    function_of: Callable[[Sequence[FrameRow], int], Key | None],
    counts: Callable[[set[int]], bool] = bool,
) -> tuple[Key | None, set[int]]:
    """Return the function with the most time whose stacks count, and its stacks.

    ``function_of`` gives the function of a stack.
    """
    frames_of, profile = context.reader.frames_of, context.profile
    functions = {stack: function_of(frames_of(stack), stack) for stack in profile.time_ns}
    for function in profile.time_by(functions.get):
        stacks = {stack for stack, one in functions.items() if one == function}
        if counts(stacks):
            return function, stacks
    return None, set()
