"""The tree of the user's lines: the line with the most time beside the step, and calls that cost.

A cause is seen in the stacks that it takes, and its remedy spares a call of the user's loop: the
outermost one that has nothing of the step and spends more than half of its time on the cause.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from profd.daemon.analyze.phases import (
    BACKWARD,
    DATA_LOAD,
    DATA_WAIT,
    EVALUATION,
    OPTIMIZER,
    OTHER,
    STEP,
    own_frames,
)
from profd.daemon.findings.context import MOST, FindingContext, line_of
from profd.daemon.findings.finding import Finding, Line
from profd.daemon.findings.kinds import library_of
from profd.daemon.findings.texts import at, table
from profd.daemon.frameworks.frames import means
from profd.daemon.store.rows import FrameRow

LinePath = tuple[int, ...]
"""The ids of the user's frames from the outermost one on.

Ahead of the frames of a function that a library calls, or of a loop, stands a number below 0, as no
line of the user's has all of it: an odd one for the function, an even one for the loop, which is
twice the id of the frame that begins it.
"""
_FOR = re.compile(r"(?:async )?for (.+?) in\b")
_WORDS = re.compile(r"\w+")
STEP_BESIDE = 0.1
"""Of the time below a line: with more of a step it is a line around the step."""
_INSTALLED = "-packages/"  # of a library's file, but not of the standard library's
_RULED_APART = frozenset({DATA_LOAD, DATA_WAIT, EVALUATION})  # other remedies spare them


class LineTree:
    """The tree of the user's lines, with the time below each: lost, of the step, and all."""

    def __init__(self, context: FindingContext, lost: Collection[int]) -> None:
        step = context.profile.time_ns.keys() - lost
        if context.once(knows_steps):
            step = {stack for stack in step if context.phases.of_stack(stack) in STEP}
        self._context, self._lost, self._step = context, lost, step
        self._ns: defaultdict[tuple[str, LinePath], float] = defaultdict(float)
        self._children: defaultdict[LinePath, set[LinePath]] = defaultdict(set)
        self._in_model: set[LinePath] = set()
        self._functions: dict[tuple[str, str], int] = {}
        self.paths = {stack: self._add(stack) for stack in context.profile.time_ns}

    def _add(self, stack: int) -> LinePath:
        """Add the time of a stack to all lines that it is below, and return its path."""
        lines, in_model, is_called = [LinePath()], False, False
        loops = self._context.once(loops_of)
        for frame in self._context.reader.frames_of(stack):
            if frame.is_library:
                in_model, is_called = in_model or means(frame, "module"), True
                continue
            number = self._functions.setdefault(_of_function(frame), len(self._functions))
            around = [-1 - 2 * number] if is_called else []
            around += [-2 * loops[frame]] if frame in loops else []
            for one in (*around, frame.id):
                self._children[lines[-1]].add(line := (*lines[-1], one))
                lines.append(line)
                if in_model:
                    self._in_model.add(line)
            is_called = False
        for part in ("all", self._part(stack)):
            for line in lines:
                self._ns[part, line] += self._context.profile.time_ns[stack]
        return lines[-1]

    def _part(self, stack: int) -> str:
        """Return what a stack is to the step; what others count is neither lost nor of the step."""
        if stack in self._step:
            is_update = self._context.phases.of_stack(stack) in (BACKWARD, OPTIMIZER)
            return "update" if is_update else "pass"
        return "lost" if stack in self._lost else "other"

    def lost_ns(self, line: LinePath) -> float:
        return self._ns["lost", line]

    def step_ns(self, line: LinePath) -> float:
        return self._ns["update", line] + self._ns["pass", line]

    def runs_other_model(self, line: LinePath) -> bool:
        """Say whether the passes below a line are not those that the step is for."""
        return line not in self._in_model and self._ns["pass", line] < self._ns["pass", ()] / 2

    def _is_apart(self, line: LinePath) -> bool:
        """Say whether a line has hardly anything of the step below it.

        One with half of the step is around it, however short the step is.
        """
        most_ns = min(STEP_BESIDE * self.lost_ns(line), self.step_ns(()) / 2)
        # The passes of another model are none of the step.
        passes_ns = 0.0 if self.runs_other_model(line) else self._ns["pass", line]
        return bool(line) and self._ns["update", line] + passes_ns <= most_ns

    def calls(self) -> list[LinePath]:
        """Return the outermost lines apart from the step with more than half of their time lost.

        The heaviest comes first.
        """
        found, tried = [], [LinePath()]
        for line in tried:
            if self._is_apart(line) and self.lost_ns(line) > self._ns["all", line] / 2:
                found.append(line)
            else:
                tried += filter(self.lost_ns, self._children[line])
        return sorted(found, key=self.lost_ns, reverse=True)

    def costly_line(self, call: LinePath, part: float) -> LinePath:
        """Return the innermost line below a call that has more than a part of its time.

        If that calls a function that it does not name, as a line that calls all callbacks does, it
        is the heaviest line of that function.
        """
        line, least_ns = call, part * self._ns["all", call]
        while below := self._children[line]:
            heaviest = max(below, key=self.lost_ns)
            counted = below if self._hides_call(line[-1], heaviest[-1]) else {heaviest}
            if sum(self._ns["all", one] for one in counted) <= least_ns:
                break
            line = heaviest
        return line

    def _hides_call(self, caller: int, called: int) -> bool:
        """Say whether a line is known not to name the function that it calls."""
        frames = self._context.reader.frames
        text = frames[caller].text if min(caller, called) > 0 else ""
        return text != "" and frames[called].function.rpartition(".")[2] not in text

    def below(self, line: LinePath) -> set[int]:
        """Return the stacks below a line that are spared with it, and are none of the step's."""
        phase_of = self._context.phases.of_stack
        found = {
            stack
            for stack, path in self.paths.items()
            if path[: len(line)] == line
            and (stack in self._lost or phase_of(stack) not in _RULED_APART)
        }
        return found if self.runs_other_model(line) else found - self._step

    def line(self, path: LinePath) -> Line | None:
        """Return the line at a path; of a function or a loop that with the most lost time."""
        while path and path[-1] < 0:
            path = max(self._children[path], key=self.lost_ns)
        return line_of(self._context.reader.frames[path[-1]]) if path else None

    def head(self, path: LinePath) -> Line | None:
        """Return the line at a path; of a loop that which begins it."""
        return self.line((-path[-1] // 2,) if is_loop(path) else path)


def is_loop(path: LinePath) -> bool:
    return bool(path) and path[-1] < 0 and path[-1] % 2 == 0


def calls_of(
    context: FindingContext,
    cause: set[int],
    frame_of: Callable[[int], FrameRow | None] | None = None,
) -> tuple[set[int], Line | None, Line | None]:
    """Return the stacks of the outermost calls of the user's loop that a cause is most of.

    With what no such call has of the cause, and without what a remedy does not spare. Then the line
    of the cause, by ``frame_of``, within the heaviest call; and that call's, None if it is below.
    """
    tree = LineTree(context, cause)
    calls = {line: tree.below(line) for line in tree.calls()}
    heaviest, stacks = next(iter(calls.items()), ((), cause))
    line = context.heaviest_line((stacks & cause).__contains__, frame_of)
    is_above = line is None or line.frame not in heaviest[:-1]
    return cause.union(*calls.values()), line, tree.head(heaviest) if is_above else None


def library_call(context: FindingContext, stacks: Collection[int]) -> str:
    """Return the function of an installed library that the user's lines call for most of stacks.

    Empty if there is none, or if it is torch's.
    """

    def called(stack: int) -> str:
        frames = reversed(context.reader.frames_of(stack))
        below = itertools.takewhile(lambda one: one.is_library, frames)
        public = [f"{library_of(one)}'s {one.function}" for one in below if _is_public(one)]
        return public[-1] if public else ""

    times_ns = context.profile.time_by(called, stacks)
    name = next(iter(times_ns), "")
    return name if times_ns[name] >= MOST * context.profile.spent_ns(stacks) else ""


def _is_public(frame: FrameRow) -> bool:
    name = frame.function.rpartition(".")[2]
    is_of_model = means(frame, "torch") or name.startswith("forward")
    is_private = name.startswith("_") or "<" in frame.function
    return _INSTALLED in frame.file and not is_of_model and not is_private


def loops_of(context: FindingContext) -> dict[FrameRow, int]:
    """Return the frame that begins the innermost ``for`` around each of the user's frames.

    The lines that were sampled tell it: a loop goes on to the last one that names what it goes
    through, but for the lines of a later loop.
    """
    frames_of = context.reader.frames_of
    lines = {frame for stack in context.profile.time_ns for frame in own_frames(frames_of(stack))}
    found = {}
    for head in sorted(lines, key=lambda one: one.line):
        if loop := _FOR.match(head.text):
            names = set(_WORDS.findall(loop[1]))
            body = [one for one in lines if _of_function(one) == _of_function(head)]
            named = (one.line for one in body if not names.isdisjoint(_WORDS.findall(one.text)))
            within = range(head.line, max(named) + 1)
            found.update({one: head.id for one in body if one.line in within})
    return found


def _of_function(frame: FrameRow) -> tuple[str, str]:
    return frame.function, frame.file


def knows_steps(context: FindingContext) -> bool:
    """Say whether all passes of a step are known: what is neither is then none of it.

    torch's own backward pass is enough; of passes by the user's hand all are to be seen.
    """
    by_torch = BACKWARD in map(context.phases.of_stack, context.stacks_of("torch"))
    return by_torch or min(context.share(BACKWARD).value, context.share(OPTIMIZER).value) > 0


def of_stacks(
    name: str,
    context: FindingContext,
    cause: set[int],
    /,
    *,
    frame_of: Callable[[int], FrameRow | None] | None = None,
    cases: Mapping[str, bool] = {},
    is_alone: bool = False,
    **words: Any,  # noqa: ANN401
) -> Finding | None:
    """Return the finding ``name`` on a cause, the stacks that it takes.

    Its share is that of the calls which the remedy spares, or that of the cause if the remedy
    spares it ``is_alone``, as of a wait. If the calls do more, the share of the cause is the second
    measure.
    """
    own = context.share_of(cause.__contains__)
    if context.severity(name, 2 * own.high) is None:
        return None
    stacks, line, call = calls_of(context, cause, frame_of)
    phase = table().finding[name].phase
    share = own if is_alone else context.share_of(stacks.__contains__)
    is_phase = share.value == context.share(phase or OTHER).value
    return context.finding(
        name,
        share,
        *(() if share.value == own.value else (own.measure("the cause alone"),)),
        line=lambda: line,
        call=call,
        at=at(line, call, library_call(context, cause)),
        cases=cases,
        selection=None if is_phase else context.selection,
        **words,
    )
