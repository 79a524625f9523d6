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
from functools import cached_property

from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    EVALUATION,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    SYNCHRONIZE,
)
from profd.daemon.findings.context import NEARLY_ALL, FindingContext
from profd.daemon.findings.finding import Finding, Line
from profd.daemon.findings.kinds import OwnFunction, own_functions, spoken
from profd.daemon.findings.linetree import (
    STEP_BESIDE,
    LinePath,
    LineTree,
    calls_of,
    is_loop,
    knows_steps,
    library_call,
)
from profd.daemon.findings.loading import is_apart_from_environment
from profd.daemon.findings.loops import UNEXPLAINED, by_element, hot_function, longest_loops
from profd.daemon.findings.memory import collects_garbage
from profd.daemon.findings.rule import hidden_if
from profd.daemon.findings.shares import Share
from profd.daemon.findings.texts import at
from profd.daemon.frameworks.frames import means
from profd.daemon.store.rows import FrameRow

_PASSES = frozenset({FORWARD, LOSS, BACKWARD})


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
    if phase == OPTIMIZER:
        return stack in context.once(beside_optimizer)
    if phase in _PASSES or (phase == EVALUATION and not context.trains):
        return context.kinds.is_no_pass(stack) or _is_hook(context.reader.frames_of(stack))
    if phase not in _unexplained(context):
        return False
    if context.once(knows_steps) or (kind is not None and not kind.waits):
        return True
    return context.trains and (kind is not None or stack in context.once(by_element))


def _unexplained(context: FindingContext) -> frozenset[str]:
    # Without a GPU nothing is waited for: a line computes what it brings to Python.
    return UNEXPLAINED | {SYNCHRONIZE} if context.uses_gpu is False else UNEXPLAINED


def _is_of_pass(context: FindingContext, stack: int) -> bool:
    """Say whether the user's innermost function is one that torch calls in its passes."""
    function = next(own_functions(context.reader.frames_of(stack)), None)
    return function in context.once(_functions_of_passes)


def beside_optimizer(context: FindingContext) -> set[int]:
    """Return the stacks of the optimizer's phase that are beside the step of torch's optimizer.

    They average weights, fit another model, or change weights and gradients by the user's hand.
    None without such a step: what is by hand, or fits a model, may be the step itself.
    """
    line_of, updates = context.phases.user_line, context.stacks_in(OPTIMIZER)
    fits = context.stacks_of("fits")
    steps = {stack for stack in updates - fits if context.means(stack, "optimizer step")}
    if not steps:
        return set()
    lines = set(map(line_of, steps))
    by_hand = {
        stack
        for stack in updates - steps
        if context.phases.is_by_hand(stack) and line_of(stack) not in lines
    }
    return by_hand | {
        stack for stack in updates if context.means(stack, "averages weights", "fits")
    }


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

    They are those of a call of the user's loop: nearly all below the line at ``path``, more than
    half below ``line``. Or they are of kinds that are overhead anywhere, and the path is empty.
    """

    context: FindingContext
    tree: LineTree
    path: LinePath
    stacks: set[int]
    call: Line | None
    line: Line | None

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
        for depth in range(1, len(self.path) + has_callee):
            line = self.tree.line(self.path[:depth]) if self.path[depth - 1] > 0 else None
            if line and _TAKES.search(line.source or ""):
                around = self.path[: depth - 1]
                around_ns = self.tree.step_ns(around[:-1] if is_loop(around) else around)
                if self.tree.step_ns(self.path[:depth]) < STEP_BESIDE * around_ns:
                    return True
        return False

    def callee(self) -> tuple[str | None, set[int]]:
        """Return the innermost of the user's functions below the line with most of the time.

        With the stacks that it is in; None and all stacks if there is no such function.
        """
        paths = self.tree.paths
        return self.context.innermost(
            {
                stack: [one for one in _below(paths[stack], self.path) if one > 0][
                    is_loop(self.path) :
                ]
                for stack in self.stacks
            }
        )


def largest_loss(context: FindingContext) -> _Loss | None:
    lost = _lost(context)
    tree, losses = LineTree(context, lost), []
    for call in tree.calls()[:1]:
        path, costly = (tree.costly_line(call, part) for part in (NEARLY_ALL, 0.5))
        # Other lines of a step may call the same one.
        also = {stack for stack in lost if path[-1] in tree.paths[stack]}
        stacks = tree.below(call) | also
        losses.append(_Loss(context, tree, path, stacks, tree.head(call), tree.line(costly)))
    # A sampler's work has a finding of its own.
    anywhere = {
        stack
        for stack in context.profile.time_ns.keys() - context.stacks_of("draws indices")
        if (kind := context.kinds.of_stack(stack)) is not None and kind.anywhere
    }
    if hooks := {stack for stack in lost if _is_hook(context.reader.frames_of(stack))}:
        # Several lines of a step may call them: forward and backward.
        calling = context.heaviest_line(hooks.__contains__)
        hook = context.heaviest_line(hooks.__contains__, context.own_frame)
        losses.append(_Loss(context, tree, (), hooks, calling, hook))
    if anywhere:
        stacks, line, around = calls_of(context, anywhere)
        losses.append(_Loss(context, tree, (), stacks, around, line))
    return max(losses, key=lambda loss: loss.all_ns, default=None)


def _has_grown(lost: Finding, other: Finding) -> bool:
    """Say whether half of what a line takes has grown during the run: then the growth says more."""
    is_of_it = other.rule == "slow-down" and other.evidence.line == lost.evidence.line
    return is_of_it and 1 - 1 / other.measured >= lost.measured / 2


@hidden_if(_has_grown)
def overhead(context: FindingContext) -> Finding | None:
    loss = context.once(largest_loss)
    if loss is None or loss.line is None:
        return None
    hot, (_, in_loops) = context.once(hot_function), context.once(longest_loops)
    looping = loss.spent_ns(loss.stacks & in_loops) / loss.all_ns if hot else 0.0
    if looping > 0.8:
        return None  # the rule on loops says more of it
    whole = context.share_of(loss.stacks.__contains__)
    if context.is_all_work(whole) or loss.spent_ns(loss.brought) > NEARLY_ALL * loss.all_ns:
        return None
    callee, _ = loss.callee()
    is_input = loss.is_input(has_callee=bool(callee))
    is_loss = is_input or looping > 0.5 or not loss.may_be_needed()
    severity = context.severity("overhead" if is_loss else "own-function", whole.low)
    if severity is None:
        return None
    kind = context.kind_of(loss.stacks)
    if kind is None:
        return _own_function(loss, whole, severity, is_input=is_input)
    named = {stack for stack in loss.stacks if context.kinds.of_stack(stack) == kind}
    return context.finding(
        "overhead",
        context.share_of(named.__contains__) if kind.waits else whole,
        severity=severity,
        line=lambda: loss.line,
        call=loss.call,
        at=at(loss.line, loss.call, library_call(context, named)),
        cases={"mixed": not kind.waits and loss.spent_ns(named) < NEARLY_ALL * loss.all_ns},
        function=spoken(loss.line.function),
        what=kind.what,
        instead=kind.instead,
        what_helps=kind.remedy,
    )


def _own_function(loss: _Loss, whole: Share, severity: str, *, is_input: bool) -> Finding | None:
    """Return the finding on a function of the user's whose calls are of no single kind."""
    context, around = loss.context, loss.tree.line(loss.path) or loss.line
    callee, named = loss.callee()
    named_ns, elements = loss.spent_ns(named), named & context.once(by_element)
    return context.finding(
        "own-function",
        whole,
        severity=severity,
        line=lambda: loss.line,
        call=loss.call,
        at=at(loss.line, loss.call, library_call(context, named)),
        cases={
            "line": callee is None,
            "loop": callee is None and is_loop(loss.path),
            "elements": loss.spent_ns(elements) > NEARLY_ALL * named_ns,
            "update": loss.spent_ns(loss.stacks & context.once(beside_optimizer)) > loss.all_ns / 2,
            "input": is_input,
        },
        mostly="mostly " if named_ns < NEARLY_ALL * loss.all_ns else "",
        function=callee or spoken(around.function if around else ""),
    )


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
