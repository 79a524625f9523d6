"""Time beside a step that no other rule explains: the line that takes it, and its kind.

Stacks outside of forward, loss, backward and optimizer form a tree of the user's lines. The search
follows the heaviest line from the root until nothing below it is of a step, and then as long as one
line has nearly all of its time: that is the line to look at. A model may run below it, for a
preview or a score, but not the passes that the step is for. The table ``overhead.toml`` says what
the calls below it do. Some kinds, such as debug modes, are overhead anywhere.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    STEP,
    SYNCHRONIZE,
)
from profd.daemon.findings.context import MOST, NEARLY_ALL, FindingContext, line_of
from profd.daemon.findings.finding import Finding, Line, Measure
from profd.daemon.findings.kinds import OwnFunction, own_functions, spoken
from profd.daemon.findings.linetree import STEP_BESIDE, LinePath, LineTree
from profd.daemon.findings.loading import is_apart_from_environment
from profd.daemon.findings.loops import UNEXPLAINED, by_element, hot_function
from profd.daemon.findings.memory import collects_garbage
from profd.daemon.findings.rule import hidden_if
from profd.daemon.findings.shares import Share
from profd.daemon.frameworks.frames import means
from profd.daemon.store.rows import FrameRow

_PASSES = frozenset({FORWARD, LOSS, BACKWARD})
_OF_INPUT = frozenset({DATA_LOAD, DATA_WAIT})  # the rules on input count it


def _lost(context: FindingContext) -> set[int]:
    """Return the stacks that are no part of a step and that no other rule counts.

    The collection of garbage has a rule of its own.
    """
    return {
        stack
        for stack in context.profile.time_ns
        if _is_lost(context, stack) and not collects_garbage(context, stack)
    }


def _is_lost(context: FindingContext, stack: int) -> bool:
    """Say whether a stack is no part of a step.

    If not all of a step is known, as in NumPy, an unexplained stack may be any part of one. Then
    only its kind shows that it is none, or that it goes element by element. A stack that waits may
    have nothing to do, unless the program trains.
    """
    kind, phase = context.kinds.of_stack(stack), context.phases.of_stack(stack)
    if phase == OTHER and kind is None and _is_of_pass(context, stack):
        return False
    if phase == DATA_LOAD:
        return is_apart_from_environment(context, stack)
    if phase in _PASSES or (phase == EVALUATION and not context.trains):
        return context.kinds.is_no_pass(stack) or _is_hook(context.reader.frames_of(stack))
    if phase not in _unexplained(context):
        return False
    if context.once(_knows_step) or (kind is not None and not kind.waits):
        return True
    return context.trains and (kind is not None or stack in context.once(by_element))


def _unexplained(context: FindingContext) -> frozenset[str]:
    # Without a GPU nothing is waited for: a line computes what it brings to Python.
    return UNEXPLAINED | {SYNCHRONIZE} if context.uses_gpu is False else UNEXPLAINED


def _is_of_pass(context: FindingContext, stack: int) -> bool:
    """Say whether the user's innermost function is one that torch calls in its passes."""
    function = next(own_functions(context.reader.frames_of(stack)), None)
    return function in context.once(_functions_of_passes)


def _functions_of_passes(context: FindingContext) -> frozenset[OwnFunction]:
    """Return the user's functions that torch calls in its passes.

    A model made of functions also runs outside of the forward pass.
    """
    found: set[OwnFunction] = set()
    for stack in context.stacks_of("torch"):
        if context.phases.of_stack(stack) in (FORWARD, LOSS):
            frames = context.reader.frames_of(stack)
            at = next(depth for depth, one in enumerate(frames) if means(one, "torch"))
            found.update(own_functions(frames[at:]))
    return frozenset(found)


@dataclass(frozen=True)
class _Loss:
    """The stacks that take the most time beside the step.

    They are those below the line of ``path``, or if not ``is_of_line``, those of kinds that are
    overhead anywhere.
    """

    context: FindingContext
    tree: LineTree
    path: LinePath
    stacks: set[int]
    is_of_line: bool

    @property
    def all_ns(self) -> float:
        return self.spent_ns(self.stacks)

    def spent_ns(self, stacks: Iterable[int]) -> float:
        return self.context.profile.spent_ns(stacks)

    @cached_property
    def brought(self) -> set[int]:
        """The stacks that bring values to Python, of which another rule says more."""
        return {
            stack for stack in self.stacks if self.context.phases.of_stack(stack) == SYNCHRONIZE
        }

    def is_brought(self) -> bool:
        return self.spent_ns(self.brought) > NEARLY_ALL * self.all_ns

    def may_be_needed(self) -> bool:
        """Say whether a step may need what most of the stacks do.

        Work in C on whole arrays may be needed. Known kinds and loops in Python are a loss at any
        size.
        """
        perhaps = [
            stack
            for stack in self.stacks - self.brought
            if (kind := self.context.kinds.of_stack(stack)) is None or kind.perhaps
        ]
        return self.spent_ns(perhaps) >= 0.5 * self.all_ns

    def is_input(self, *, has_callee: bool) -> bool:
        """Say whether a generator through which the loop of the steps goes does the work.

        A torn sample may have a little of a step below the line of such a loop.
        """
        if not self.is_of_line:
            return False
        for depth in range(1, len(self.path) + has_callee):
            if _TAKES.search(self.context.reader.frames[self.path[depth - 1]].text):
                around_ns = self.tree.step_ns(self.path[: depth - 1])
                if self.tree.step_ns(self.path[:depth]) < STEP_BESIDE * around_ns:
                    return True
        return False

    def callee(self) -> tuple[str | None, set[int]]:
        """Return the innermost of the user's functions below the line with most of the time.

        With the stacks that it is in; None and all stacks if there is no such function.
        """
        paths = self.tree.paths
        return self.context.innermost(
            {stack: _below(paths[stack], self.path) for stack in self.stacks}
        )

    def line(self) -> Line | None:
        if not self.is_of_line:
            return self.context.heaviest_line(self.stacks.__contains__)
        return line_of(self.context.reader.frames[self.path[-1]]) if self.path else None


def _largest_loss(context: FindingContext) -> _Loss | None:
    lost, phase_of, of_kind = _lost(context), context.phases.of_stack, context.kinds.of_stack
    step = context.profile.time_ns.keys() - lost
    if context.once(_knows_step):
        step = {stack for stack in step if phase_of(stack) in STEP}
    tree = LineTree(context, lost, step)
    path = tree.heaviest_line()
    below = set() if path is None else _stacks_of(context, tree, path, lost, step)
    aside = {
        stack
        for stack in context.profile.time_ns
        if (kind := of_kind(stack)) is not None and kind.anywhere
    }
    losses = [
        _Loss(context, tree, path or (), stacks, is_of_line)
        for stacks, is_of_line in ((below, True), (aside, False))
    ]
    largest = max(losses, key=lambda loss: loss.spent_ns(loss.stacks))
    return largest if largest.stacks else None


def _stacks_of(
    context: FindingContext, tree: LineTree, path: LinePath, lost: set[int], step: set[int]
) -> set[int]:
    """Return the stacks below the line to look at that are a loss."""
    below = {
        stack
        for stack, line in tree.paths.items()
        if line[: len(path)] == path
        and (stack in lost or context.phases.of_stack(stack) not in _OF_INPUT)
    }
    # Other lines of a step may call the same one.
    also = {stack for stack in lost if path and path[-1] in tree.paths[stack]}
    return also | (below if tree.runs_other_model(path) else below - step)


def _has_grown(lost: Finding, other: Finding) -> bool:
    """Say whether half of what a line takes has grown during the run: then the growth says more."""
    is_of_it = other.rule == "slow-down" and other.evidence.line == lost.evidence.line
    return is_of_it and 1 - 1 / other.measured >= lost.measured / 2


@hidden_if(_has_grown)
def overhead(context: FindingContext) -> Finding | None:
    loss = _largest_loss(context)
    if loss is None:
        return None
    whole = context.share_of(loss.stacks.__contains__)
    if context.is_all_work(whole) or loss.is_brought():
        return None
    function = _function(context, loss.stacks)
    in_loops = _share_in_loops(context, function)
    if in_loops is not None and in_loops >= 0.8 * whole.value:
        return None  # the rule on loops says more of it
    callee, _ = loss.callee()
    is_input = loss.is_input(has_callee=bool(callee))
    is_loss = is_input or in_loops is not None or not loss.may_be_needed()
    severity = context.severity("overhead" if is_loss else "own-function", whole.low)
    if severity is None:
        return None
    by_kind = context.profile.time_by(context.kinds.of_stack, loss.stacks)
    kind, most_ns = next(iter(by_kind.items()), (None, 0.0))
    if kind is None or most_ns < MOST * loss.all_ns:
        return _own_function(loss, whole, severity, function, is_input=is_input)
    # The share is that of what is named; what only waits is apart from the rest of a line. All of
    # it may be gained.
    named = loss.stacks
    if kind.waits:
        named = {stack for stack in named if context.kinds.of_stack(stack) == kind}
    return context.finding(
        "overhead",
        context.share_of(named.__contains__),
        *_rest_of_line(loss, whole, named),
        severity=severity,
        gain=partial(context.bound, whole),
        line=loss.line,
        cases={"mixed": named == loss.stacks and most_ns < NEARLY_ALL * loss.all_ns},
        function=function,
        what=kind.what,
        instead=kind.instead,
        what_helps=kind.remedy,
    )


def _own_function(
    loss: _Loss, whole: Share, severity: str, function: str, *, is_input: bool
) -> Finding | None:
    """Return the finding on a function of the user's whose calls are of no single kind."""
    context = loss.context
    callee, named = loss.callee()
    around = spoken(context.reader.frames[loss.path[-1]].function) if loss.path else ""
    elements_ns = loss.spent_ns(named & context.once(by_element))
    return context.finding(
        "own-function",
        context.share_of(named.__contains__),
        *_rest_of_line(loss, whole, named),
        severity=severity,
        gain=partial(context.bound, whole),
        line=loss.line,
        cases={
            "line": callee is None,
            "elements": elements_ns > NEARLY_ALL * loss.spent_ns(named),
            "input": is_input,
        },
        function=callee or around or function,
    )


def _rest_of_line(loss: _Loss, whole: Share, named: set[int]) -> tuple[Measure, ...]:
    return () if named == loss.stacks else (whole.measure("all of that line"),)


def _share_in_loops(context: FindingContext, function: str) -> float | None:
    """Return the share of the time that a function spends in its loops.

    None if it is not the one that the rule on loops names.
    """
    hot = context.once(hot_function)
    line = hot.evidence.line if hot else None
    if hot is None or line is None or spoken(line.function) != function:
        return None
    return hot.measured


def _knows_step(context: FindingContext) -> bool:
    """Say whether all passes of a step are known: what is neither is then none of it.

    torch's own backward pass is enough; of passes by the user's hand all are to be seen.
    """
    by_torch = BACKWARD in map(context.phases.of_stack, context.stacks_of("torch"))
    return by_torch or min(context.share(BACKWARD).value, context.share(OPTIMIZER).value) > 0


_TAKES = re.compile(r"^\s*(async )?for\b.+\bin\b|\bnext\(")


def _is_hook(frames: Sequence[FrameRow]) -> bool:
    """Say whether a stack is in a hook of the user's.

    A hook is a function that autograd or a module calls in addition to its own work.
    """
    for caller, frame in itertools.pairwise(frames):
        if frame.is_library or not caller.is_library:
            continue
        # What autograd calls from C stands right below its engine; functions of its own are called
        # by way of a class.
        if means(caller, "engine", "calls hooks"):
            return True
        is_named = "forward" not in frame.function and "lambda" not in frame.function
        if is_named and means(caller, "calls forward"):
            return True
    return False


def _below(path: LinePath, anchor: LinePath) -> LinePath:
    """Return what follows the last frame of ``anchor`` in a path.

    Return all of the path if it does not have that frame.
    """
    return path[path.index(anchor[-1]) + 1 :] if anchor and anchor[-1] in path else path


def _function(context: FindingContext, stacks: set[int]) -> str:
    """Return the name of the user's function in which most of the time of some stacks goes by."""

    def name_of(stack: int) -> str:
        return next(own_functions(context.reader.frames_of(stack)), ("", ""))[0]

    return next(iter(context.profile.time_by(name_of, stacks)))
