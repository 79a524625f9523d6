"""The tree of the user's lines, and the line of it that takes the most time beside the step."""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence

from profd.daemon.analyze.phases import BACKWARD, OPTIMIZER, own_frames
from profd.daemon.findings.context import NEARLY_ALL, FindingContext, line_of
from profd.daemon.findings.finding import Line
from profd.daemon.frameworks.frames import means
from profd.daemon.store.rows import FrameRow

LinePath = tuple[int, ...]
"""The ids of the user's frames from the outermost one on."""
STEP_BESIDE = 0.1
"""Of the time below a line: with more of a step it is a line around the step."""


class _StepPart(enum.Enum):
    """What a stack is to the step."""

    LOST = enum.auto()
    UPDATE = enum.auto()  # backward pass and optimizer
    PASS = enum.auto()  # the rest of the step
    OTHER = enum.auto()  # counted by other rules


class LineTree:
    """The tree of the user's lines, with the time below each by its part of the step."""

    def __init__(
        self, context: FindingContext, lost: Collection[int], step: Collection[int] = ()
    ) -> None:
        self._ns: defaultdict[LinePath, dict[_StepPart, float]] = defaultdict(
            lambda: dict.fromkeys(_StepPart, 0.0)
        )
        self._children: defaultdict[LinePath, set[LinePath]] = defaultdict(set)
        self._in_model: set[LinePath] = set()
        self.paths: dict[int, LinePath] = {}
        phase_of, updates = context.phases.of_stack, (BACKWARD, OPTIMIZER)
        for stack, time_ns in context.profile.time_ns.items():
            part = _StepPart.LOST if stack in lost else _StepPart.OTHER
            if stack in step:
                part = _StepPart.UPDATE if phase_of(stack) in updates else _StepPart.PASS
            self._add(stack, context.reader.frames_of(stack), part, time_ns)

    def _add(self, stack: int, frames: Sequence[FrameRow], part: _StepPart, time_ns: float) -> None:
        path = self.paths[stack] = tuple(frame.id for frame in own_frames(frames))
        self._ns[()][part] += time_ns
        outside = itertools.takewhile(lambda frame: not means(frame, "module"), frames)
        depth_of_model = len(own_frames(outside))
        for depth in range(1, len(path) + 1):
            line = path[:depth]
            self._ns[line][part] += time_ns
            self._children[path[: depth - 1]].add(line)
            if depth > depth_of_model:
                self._in_model.add(line)

    def _all_ns(self, line: LinePath) -> float:
        return sum(self._ns[line].values())

    def _rest_ns(self, line: LinePath) -> float:
        return self.step_ns(line) + self._ns[line][_StepPart.OTHER]

    def lost_ns(self, line: LinePath) -> float:
        return self._ns[line][_StepPart.LOST]

    def step_ns(self, line: LinePath) -> float:
        return self._ns[line][_StepPart.UPDATE] + self._ns[line][_StepPart.PASS]

    def runs_other_model(self, line: LinePath) -> bool:
        """Say whether the passes below a line are not those that the step is for."""
        passes_ns, all_ns = self._ns[line][_StepPart.PASS], self._ns[()][_StepPart.PASS]
        return line not in self._in_model and passes_ns < all_ns / 2

    def _own_step_ns(self, line: LinePath) -> float:
        """Return the time of the step below a line, without the passes of another model."""
        return (
            self._ns[line][_StepPart.UPDATE] if self.runs_other_model(line) else self.step_ns(line)
        )

    def heaviest_line(self) -> LinePath | None:
        """Return the line to look at; None if other rules explain the time below it."""
        line: LinePath = ()
        while children := self._children[line]:
            heaviest = max(children, key=self.lost_ns)
            is_apart = bool(line) and self._own_step_ns(line) <= STEP_BESIDE * self.lost_ns(line)
            has_all = self._all_ns(heaviest) > NEARLY_ALL * self._all_ns(line)
            if not self.lost_ns(heaviest) or (is_apart and not has_all):
                break
            line = heaviest
        of_step_ns, lost_ns = self._own_step_ns(line), self.lost_ns(line)
        is_around_step = of_step_ns > STEP_BESIDE * lost_ns
        if is_around_step or lost_ns < (self._all_ns(line) - of_step_ns) / 2:
            return None
        return line

    def line_of_call(self) -> LinePath:
        """Return the outermost line below which nearly all time is lost; empty if none is.

        Mostly that is the line of the loop. The line also leaves out most of the rest: otherwise,
        if nearly all of a step is lost, it would be that of ``main()``.
        """
        line: LinePath = ()
        while below := list(filter(self.lost_ns, self._children[line])):
            line = max(below, key=self.lost_ns)
            most_ns = min((1 - NEARLY_ALL) * self._all_ns(line), self._rest_ns(()) / 2)
            if self._rest_ns(line) <= most_ns:
                break
        return line


def line_of_call(context: FindingContext, stacks: Collection[int]) -> Line | None:
    """Return the outermost of the user's lines below which nearly all time is in these stacks."""
    path = LineTree(context, stacks).line_of_call()
    return line_of(context.reader.frames[path[-1]]) if path else None
