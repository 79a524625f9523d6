"""Phases: what a thread is doing, one word for each of its stacks.

Decides by the table of ``rules``, once a stack. Knows nothing of times and shares; what a phase looks like on a screen
(letter, color) stands here, so that it looks the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from profd.daemon.analyze.rules import Rule, frame_test, load_rules
from profd.daemon.store.rows import FrameRow, StackRow


class Phase(msgspec.Struct, frozen=True):
    """A phase: ``letter`` stands for it where there is no color, ``color`` is ``#RRGGBB``, safe for color blindness."""

    name: str
    letter: str
    color: str


PHASES: tuple[Phase, ...] = (
    Phase("data wait", "D", "#E69F00"),
    Phase("data load in process", "L", "#D55E00"),
    Phase("host-to-device copy", "H", "#CC79A7"),
    Phase("forward", "F", "#0072B2"),
    Phase("loss", "O", "#4C6EB5"),
    Phase("backward", "B", "#56B4E9"),
    Phase("optimizer", "P", "#009E73"),
    Phase("synchronize", "S", "#F0E442"),
    Phase("collective", "C", "#AA4499"),
    Phase("checkpoint", "K", "#882255"),
    Phase("evaluation", "E", "#44AA99"),
    Phase("logging", "G", "#999933"),
    Phase("compile", "J", "#332288"),
    Phase("startup, import", "I", "#BBBBBB"),
    Phase("waiting", "W", "#777777"),
    Phase("other", "·", "#999999"),
)
"""Every phase, in the order of a training step, then of what interrupts it."""

OTHER = "other"
_BY_NAME = {phase.name: phase for phase in PHASES}


def phase_named(name: str) -> Phase:
    """Return the phase of this name; raises KeyError where there is none."""
    return _BY_NAME[name]


def own_frame(frames: Sequence[FrameRow]) -> FrameRow | None:
    """Return the innermost frame of the user's own code in a stack; None where there is none."""
    return next((frame for frame in reversed(frames) if not frame.is_library), None)


class StackTables(Protocol):
    """Who knows the stacks of a run: a reader of its file."""

    @property
    def stacks(self) -> Mapping[int, StackRow]:
        """The stacks, by id."""
        ...

    @property
    def frames(self) -> Mapping[int, FrameRow]:
        """The frames that the stacks are made of, by id."""
        ...

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack from the root to the leaf."""
        ...


class PhaseIndex:
    """The phase of every stack of a run.

    A stack meets a rule where any of its frames does (its innermost one, or the innermost of the user's own, for rules
    on these), and the first rule in order decides. What the frames of a stack meet is what its parent's meet and what
    its own meets: one bit a rule, the first rule lowest, so that each stack costs one step however deep it is.
    """

    def __init__(self, reader: StackTables, rules: tuple[Rule, ...] | None = None) -> None:
        """Index the stacks of ``reader``, those written later too.

        ``rules`` are those of the two tables where none are given; raises UsageError where the user's is wrong.
        """
        self._reader = reader
        self.rules = load_rules(_BY_NAME) if rules is None else rules
        self._tests = [frame_test(rule) for rule in self.rules]
        self._leaf_rules = sum(1 << number for number, rule in enumerate(self.rules) if rule.leaf)
        self._innermost_rules = sum(1 << number for number, rule in enumerate(self.rules) if rule.innermost)
        self._met_by_frame: dict[int, int] = {}
        # The stack 0 is the parent of the roots.
        self._met_by_stack: dict[int, int] = {0: 0}
        self._met_by_innermost: dict[int, int] = {0: 0}
        self._rule_of_stack: dict[int, int | None] = {}

    def of_stack(self, stack: int) -> str:
        """Return the name of the phase of a stack."""
        rule = self._rule(stack)
        return OTHER if rule is None else self.rules[rule].phase

    def user_line(self, stack: int) -> FrameRow | None:
        """Return the line of the user's code that a stack owes its phase to; None where no user code is in it.

        That is the innermost line of theirs above or at the frame that decided: ``logits = model(images)`` for a
        forward pass, however much of their own code the model runs.
        """
        rule = self._rule(stack)
        found = None
        for frame in self._reader.frames_of(stack):
            if not frame.is_library:
                found = frame
            if rule is not None and self._is_on_any(rule) and self._met(frame) >> rule & 1:
                break
        return found

    def _rule(self, stack: int) -> int | None:
        """Return the number of the rule that decides on a stack."""
        if stack not in self._rule_of_stack:
            met = self._met_along(stack) | self._met_innermost(stack)
            if stack:
                met |= self._met(self._frame(stack)) & ~self._innermost_rules
            # The lowest bit that is set.
            self._rule_of_stack[stack] = (met & -met).bit_length() - 1 if met else None
        return self._rule_of_stack[stack]

    def _met_along(self, stack: int) -> int:
        """Return the rules on any frame that the frames of a stack meet."""
        unknown = []
        while stack not in self._met_by_stack:
            unknown.append(stack)
            stack = self._reader.stacks[stack].parent
        met = self._met_by_stack[stack]
        for inner in reversed(unknown):
            met |= self._met(self._frame(inner)) & ~(self._leaf_rules | self._innermost_rules)
            self._met_by_stack[inner] = met
        return met

    def _met_innermost(self, stack: int) -> int:
        """Return the rules on it that the innermost frame of the user's in a stack meets."""
        above = []
        while stack not in self._met_by_innermost and self._frame(stack).is_library:
            above.append(stack)
            stack = self._reader.stacks[stack].parent
        if stack not in self._met_by_innermost:
            self._met_by_innermost[stack] = self._met(self._frame(stack)) & self._innermost_rules
        met = self._met_by_innermost[stack]
        self._met_by_innermost.update(dict.fromkeys(above, met))
        return met

    def _is_on_any(self, rule: int) -> bool:
        return not (self.rules[rule].leaf or self.rules[rule].innermost)

    def _frame(self, stack: int) -> FrameRow:
        return self._reader.frames[self._reader.stacks[stack].frame]

    def _met(self, frame: FrameRow) -> int:
        """Return the rules that a frame meets."""
        if frame.id not in self._met_by_frame:
            self._met_by_frame[frame.id] = sum(1 << number for number, test in enumerate(self._tests) if test(frame))
        return self._met_by_frame[frame.id]
