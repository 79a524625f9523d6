"""Loops in Python: the function that spends its time in them, and calls made element by element."""

from __future__ import annotations

import re
from functools import partial

from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    DATA_WAIT,
    OPTIMIZER,
    OTHER,
    STARTUP,
    SYNCHRONIZE,
    WAITING,
)
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import Finding
from profd.daemon.findings.kinds import OwnFunction, own_functions
from profd.daemon.findings.linetree import of_stacks
from profd.daemon.findings.rule import hidden_if
from profd.daemon.store.rows import FrameRow

UNEXPLAINED = frozenset({OTHER, WAITING, STARTUP})
# What is listed in the line is no array of elements: a few things, each of which may be large.
_COMPREHENSION = re.compile(r"\bfor\b.+\bin\b(?!\s*[(\[](?!.*\bfor\b))")
_LOOP = re.compile(rf"^\s*(while\b|{_COMPREHENSION.pattern})")
# Each has a rule of its own that says more.
_OTHER_RULES = frozenset({DATA_LOAD, DATA_WAIT, STARTUP, SYNCHRONIZE})


@hidden_if(lambda own, other: other.rule == "overhead" and other.evidence.call == own.evidence.call)
def hot_function(context: FindingContext) -> Finding | None:
    """Return the function that loops for most of the time."""
    function, stacks = context.once(longest_loops)
    if function is None or context.is_all_work(context.share_of(stacks.__contains__)):
        return None
    spent_ns = context.profile.spent_ns
    cases = {"update": 2 * spent_ns(context.stacks_in(OPTIMIZER) & stacks) > spent_ns(stacks)}
    return of_stacks(
        "hot-function", context, stacks, frame_of=context.leaf, cases=cases, name=function[0]
    )


def longest_loops(context: FindingContext) -> tuple[OwnFunction | None, set[int]]:
    """Return the function that loops for most of the time, and the stacks in which it does.

    A function whose time is mostly of a known kind does not count: its kind says more of it.
    """
    looping = _looping_stacks(context)
    time_by = partial(context.profile.time_by, looping.get)
    known_ns = time_by(filter(partial(_is_known, context), looping))
    unknown = (key for key, time_ns in time_by().items() if known_ns.get(key, 0.0) < time_ns / 2)
    function = next(unknown, None)
    return function, {stack for stack, key in looping.items() if key == function}


def _looping_stacks(context: FindingContext) -> dict[int, OwnFunction]:
    """Return the stacks in which the user's functions loop, with the function of each.

    All of a function's own time counts if the lines of its loops have enough of it. Otherwise only
    the lines of its comprehensions count, except those of an update, which go through tensors.
    """
    functions = {
        stack: function
        for stack in context.profile.time_ns
        if (function := _function_of(context, stack)) is not None
    }
    loops = {stack for stack in functions if _LOOP.search(context.leaf(stack).text)}
    comprehensions = {
        stack
        for stack in functions
        if _COMPREHENSION.search(context.leaf(stack).text)
        and context.phases.of_stack(stack) != OPTIMIZER
    }
    own_ns, loops_ns, others_ns = (
        context.profile.time_by(functions.get, stacks)
        for stacks in (functions, loops, comprehensions - loops)
    )
    # If lines call into C, which has no frames, the line of the loop itself is hardly ever seen.
    # The line of a comprehension is all of it.
    looping = {
        function
        for function, time_ns in own_ns.items()
        if loops_ns.get(function, 0.0) > 0.02 * time_ns
        or others_ns.get(function, 0.0) > 1 / 3 * time_ns
    }
    return {
        stack: function
        for stack, function in functions.items()
        if stack in comprehensions or function in looping
    }


def _is_known(context: FindingContext, stack: int) -> bool:
    """Say whether the kind of a stack says what it does beside a step."""
    if context.kinds.is_no_pass(stack):
        return True
    return context.phases.of_stack(stack) in UNEXPLAINED and bool(context.kinds.of_stack(stack))


def by_element(context: FindingContext) -> frozenset[int]:
    """Return the stacks in which a user's comprehension calls what takes the time.

    A comprehension that calls a whole step does not count.
    """
    frames_of, phase_of = context.reader.frames_of, context.phases.of_stack
    stacks = context.profile.time_ns
    updates = {
        one.id
        for stack in stacks
        if phase_of(stack) in (BACKWARD, OPTIMIZER)
        for one in frames_of(stack)
    }

    def is_element(frame: FrameRow) -> bool:
        source = frame.text
        is_comprehension = _COMPREHENSION.search(source) and not _LOOP.match(source)
        return bool(is_comprehension) and not frame.is_library and frame.id not in updates

    return frozenset(stack for stack in stacks if any(map(is_element, frames_of(stack))))


def _function_of(context: FindingContext, stack: int) -> OwnFunction | None:
    """Return the user's function at the leaf of a stack; None if another rule is on the stack.

    The time of a comprehension belongs to its function, as in Python itself from 3.12 on.
    """
    if context.leaf(stack).is_library or context.phases.of_stack(stack) in _OTHER_RULES:
        return None
    return next(own_functions(context.reader.frames_of(stack)), None)
