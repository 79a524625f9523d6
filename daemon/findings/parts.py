"""Parts of a step that may be what the program is for, and may cost less: mostly remarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from profd.daemon.analyze.phases import (
    BACKWARD,
    EVALUATION,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
)
from profd.daemon.findings.context import MOST, NEARLY_ALL, FindingContext
from profd.daemon.findings.finding import Finding
from profd.daemon.findings.kinds import OwnFunction, own_functions, part_name, spoken
from profd.daemon.findings.linetree import calls_of, of_stacks
from profd.daemon.findings.rule import hidden_if
from profd.daemon.frameworks.frames import means
from profd.daemon.store.rows import FrameRow

Key = TypeVar("Key", bound=tuple[object, ...])


def part_of_model(context: FindingContext) -> Finding | None:
    """Return a function of the user's that a model calls and that takes much time in no module.

    Its result may not depend on the batch, or may cost less in other words.
    """
    function, stacks = context.once(_called_by_model)
    if function is None:
        return None
    return of_stacks(
        "part-of-model",
        context,
        stacks,
        frame_of=context.own_frame,
        is_alone=True,
        function=function[0],
    )


def _called_by_model(context: FindingContext) -> tuple[OwnFunction | None, set[int]]:
    """Return the function with the most time that a model calls and that is in no module.

    Stacks of a known kind do not count: the kind says more of them.
    """

    def function_of(frames: Sequence[FrameRow], stack: int) -> OwnFunction | None:
        if context.phases.of_stack(stack) != FORWARD or context.kinds.is_no_pass(stack):
            return None
        own = _innermost(frames, lambda one: not one.is_library)
        module = _innermost(frames, lambda one: means(one, "module"))
        # A model has to call it, no module below it, and not as the forward function of a module.
        if module < 0 or module > own or module == own - 1:
            return None
        name = spoken(frames[own].function)
        is_forward = name.rpartition(".")[2].startswith(("forward", "_forward"))
        return None if is_forward else (name, frames[own].file)

    return _largest(context, function_of)


def _innermost(frames: Sequence[FrameRow], holds: Callable[[FrameRow], bool]) -> int:
    """Return the depth of the innermost frame that ``holds`` is true of, -1 if there is none."""
    return max((depth for depth, one in enumerate(frames) if holds(one)), default=-1)


class _Runner(NamedTuple):
    """What runs code without gradients: a function, or the line ``frame`` of a block within it."""

    name: str
    file: str
    frame: int | None = None


def forward_without_gradients(context: FindingContext) -> Finding | None:
    """Return the user's function that runs a model without gradients within a step.

    Other parts of the step have gradients. A model that is not trained gives the same result for
    the same data again. If a function that it calls takes most of that, this function says more.
    """
    if not context.share(BACKWARD).value:
        return None
    runner, stacks = _largest(context, partial(_without_gradients, context))
    spent_ns = context.profile.spent_ns
    if runner is None or 2 * spent_ns(context.stacks_of("module") & stacks) < spent_ns(stacks):
        return None
    _, part = context.once(_called_by_model)
    if 2 * spent_ns(part & stacks) > spent_ns(stacks) and context.once(part_of_model):
        return None
    return of_stacks(
        "forward-without-gradients",
        context,
        stacks,
        frame_of=partial(_block_or_line, context),
        cases={"of-agent": bool(context.stacks_of("environment"))},
        function=runner.name,
    )


def _block_or_line(context: FindingContext, stack: int) -> FrameRow | None:
    """Return the line in a block without gradients: what it calls may be called with them, too."""
    blocks = context.reader.entities.without_gradients
    frames = (one for one in context.reader.frames_of(stack) if one.id in blocks)
    return next(frames, None) or context.phases.user_line(stack)


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


def text_generation(context: FindingContext) -> Finding | None:
    """Return the time in which a model that is trained generates texts.

    Methods with rewards train on them.
    """
    if not context.share(BACKWARD).value:
        return None
    stacks = context.stacks_of("generates") - context.within(EVALUATION)
    return of_stacks("text-generation", context, stacks)


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
    called, _, line = calls_of(context, stacks)
    share = context.share_of(called.__contains__)
    # The loop itself is no part of it, and neither is a line that takes the whole step:
    # `svi.step(batch)`.
    if line is None or share.high > NEARLY_ALL:
        return None
    names = context.profile.time_by(
        lambda stack: part_name(context.reader.frames_of(stack)), stacks
    )
    name, time_ns = next(iter(names.items()))
    name = name if time_ns >= MOST * context.profile.spent_ns(stacks) else function[0]
    return context.finding("largest-part", share, line=lambda: line, function=name)


def _largest(
    context: FindingContext, function_of: Callable[[Sequence[FrameRow], int], Key | None]
) -> tuple[Key | None, set[int]]:
    """Return the function with the most time, and its stacks.

    ``function_of`` gives the function of a stack.
    """
    frames_of, profile = context.reader.frames_of, context.profile
    functions = {stack: function_of(frames_of(stack), stack) for stack in profile.time_ns}
    function = next(iter(profile.time_by(functions.get)), None)
    return function, {stack for stack, one in functions.items() if one == function}
