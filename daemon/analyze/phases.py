"""Phases: what a thread is doing, one word for each stack, by an ordered table of rules.

This module also says when a run trains, and how a phase looks on all screens (letter, color).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.frameworks.frames import means
from profd.daemon.frameworks.patterns import FramePattern, frame_test, read_patterns, tables
from profd.daemon.store.entities import Entities
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow
from profd.daemon.timerange import TimeRange

BUILT_IN = Path(__file__).with_name("phases.toml")


class Rule(FramePattern, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A phase, and what one frame of a stack must be for the stack to belong to it."""

    phase: str
    leaf: bool = False
    innermost: bool = False
    waits: bool = False


def read_rules(file: Path) -> tuple[Rule, ...]:
    """Read a table of rules; raises UsageError that names what is wrong with it."""
    rules = read_patterns(file, "rule", Rule, "docs/phases.md shows what it holds")
    for number, rule in enumerate(rules, 1):
        if rule.phase not in _BY_NAME:
            what = f"{file}, rule {number}: there is no phase {rule.phase!r}"
            raise UsageError(what, f"use one of: {'; '.join(sorted(_BY_NAME))}")
    return rules


class Phase(msgspec.Struct, frozen=True):
    """A phase, with a ``color`` that is ``#RRGGBB`` and safe for color blindness.

    ``letter`` stands for the phase without color, ``short`` is its name for little room, ``doing``
    is what a thread does in it, as the end of a sentence.
    """

    name: str
    short: str
    letter: str
    color: str
    doing: str


DATA_WAIT = "data wait"
DATA_LOAD = "data load in process"
COPY = "host-to-device copy"
FORWARD = "forward"
LOSS = "loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
SYNCHRONIZE = "synchronize"
COLLECTIVE = "collective"
CHECKPOINT = "checkpoint"
EVALUATION = "evaluation"
INFERENCE = "inference"
LOGGING = "logging"
COMPILE = "compile"
STARTUP = "startup, import"
SCHEDULE, PREPARE, SAMPLE, REQUESTS = "schedule", "prepare", "sample", "wait for requests"
WAITING = "waiting"
OTHER = "other"

PHASES: tuple[Phase, ...] = (
    Phase(DATA_WAIT, "data", "D", "#E69F00", "waits for data"),
    Phase(DATA_LOAD, "load", "L", "#D55E00", "loads data itself"),
    Phase(COPY, "h2d", "H", "#CC79A7", "copies data to the device"),
    Phase(FORWARD, "fwd", "F", "#0072B2", "computes the forward pass"),
    Phase(LOSS, "loss", "O", "#4C6EB5", "computes the loss"),
    Phase(BACKWARD, "bwd", "B", "#56B4E9", "computes the backward pass"),
    Phase(OPTIMIZER, "opt", "P", "#009E73", "updates the weights"),
    Phase(SYNCHRONIZE, "sync", "S", "#F0E442", "waits for the device"),
    Phase(COLLECTIVE, "coll", "C", "#AA4499", "exchanges data with other ranks"),
    Phase(CHECKPOINT, "save", "K", "#882255", "saves checkpoints"),
    Phase(EVALUATION, "eval", "E", "#44AA99", "evaluates the model"),
    Phase(INFERENCE, "infer", "X", "#661100", "runs the model beside its passes"),
    Phase(LOGGING, "log", "G", "#999933", "writes logs"),
    Phase(COMPILE, "jit", "J", "#332288", "compiles"),
    Phase(STARTUP, "import", "I", "#BBBBBB", "starts up and imports"),
    Phase(SCHEDULE, "sched", "Q", "#DDCC77", "chooses the requests of the next batch"),
    Phase(PREPARE, "prep", "R", "#88CCEE", "prepares a batch of requests"),
    Phase(SAMPLE, "sample", "M", "#117733", "samples tokens"),
    Phase(REQUESTS, "idle", "N", "#AAAAAA", "waits for requests"),
    Phase(WAITING, "wait", "W", "#777777", "waits, and its stacks do not tell for what"),
    Phase(OTHER, "other", "·", "#999999", "does what no rule for phases knows"),
)
"""Every phase: first those of a training step, then those that interrupt it, then a server's."""

STEP = frozenset({FORWARD, LOSS, BACKWARD, OPTIMIZER, INFERENCE})
"""The phases that a program is for: a step of a training, and a service's inference."""
WITHOUT_WORK = frozenset({DATA_WAIT, SYNCHRONIZE, COLLECTIVE, REQUESTS, WAITING, COPY})
"""Phases in which the main thread itself has nothing to do."""
ONCE_A_STEP = ((BACKWARD,), (FORWARD, LOSS), (DATA_WAIT, DATA_LOAD))
"""Groups of phases that come once a step.

The optimizer may come twice, first to set gradients to zero.
"""
_BY_NAME = {phase.name: phase for phase in PHASES}


def phase_named(name: str) -> Phase:
    """Return the phase of this name; raises KeyError if there is none."""
    return _BY_NAME[name]


class PhasePlace(msgspec.Struct, frozen=True):
    """A line of the user's code, and the phase that ran at it or below."""

    phase: str
    function: str
    file: str
    module_path: str
    line: int
    source: str | None


def own_frame(frames: Sequence[FrameRow]) -> FrameRow | None:
    """Return the innermost frame of the user's own code in a stack; None if there is none.

    Frames outside of a forked child's start are copies of its parent's: the child does not run
    them.
    """
    for frame in reversed(frames):
        if not frame.is_library:
            return frame
        if means(frame, "child begins"):
            break
    return None


def own_frames(frames: Iterable[FrameRow]) -> list[FrameRow]:
    """Return the frames of the user's own code, the outermost first."""
    return [frame for frame in frames if not frame.is_library]


_ABOVE_ROOTS = {0: (0, 0)}  # the stack 0 is the parent of the roots, and matches no rule
MOST_STACKS = 1_000  # with their phases 0.6 MB: restless code has ever new ones


def rules_in_force() -> tuple[Rule, ...]:
    """Return the rules of the two tables, the user's first; raises UsageError if they are wrong."""
    return tuple(itertools.chain(*map(read_rules, tables(BUILT_IN))))


class PhaseIndex:
    """The phase of every stack of a run.

    A stack matches a rule if any of its frames does (for some rules its innermost frame, or the
    user's innermost), and the first rule in order decides. A stack matches the rules that its
    parent matches and those of its own frame: one bit a rule, the first rule lowest, so that each
    stack costs one step at any depth.
    """

    def __init__(self, reader: RunReader | Entities) -> None:
        """Index the stacks of ``reader``, those written later too, by ``rules_in_force``."""
        self._reader = reader
        self.rules = rules_in_force()
        self._met = _rules_met(self.rules)
        self._leaf_rules = self._rules_that(lambda rule: rule.leaf)
        self._innermost_rules = self._rules_that(lambda rule: rule.innermost)
        self._rules_of_waits = self._rules_that(lambda rule: rule.waits)
        self._met_by_stack = dict(_ABOVE_ROOTS)
        self._rule_of_stack: dict[int, int | None] = {}
        self._of_forgotten: set[str] = set()
        self._has_trained, self._looked_through = False, 0
        self._needed: int | None = None
        self._rules_of = functools.cache(
            lambda phase: self._rules_that(lambda rule: rule.phase == phase)
        )
        self.user_line = functools.cache(self._user_line)
        self.update_line = functools.cache(self._update_line)

    def forget_many(self) -> None:
        """Forget all stacks (the reader's too) between looks at a live run if they are many.

        They are many above ``MOST_STACKS``, and above twice the number that the first look after
        the last time needed. The reader has to read a stack again if a row names it.
        """
        if self._needed is None:
            self._needed = len(self._reader.stacks)
        if len(self._reader.stacks) <= max(MOST_STACKS, 2 * self._needed):
            return
        self._of_forgotten.update(self.of_run())
        self._reader.stacks.clear()
        self._met_by_stack = dict(_ABOVE_ROOTS)
        self._rule_of_stack.clear()
        self.user_line.cache_clear()
        self.update_line.cache_clear()
        self._needed = None

    def of_run(self) -> Iterator[str]:
        """Yield the phase of each stack that was ever read; forgotten stacks yield theirs once."""
        yield from self._of_forgotten
        yield from map(self.of_stack, self._reader.stacks)

    def of_stack(self, stack: int) -> str:
        """Return the phase of a stack; in a run that trains, what is asked for is its input."""
        rule = self._rule(stack)
        phase = OTHER if rule is None else self.rules[rule].phase
        return DATA_WAIT if phase == REQUESTS and self._trains() else phase

    def _trains(self) -> bool:
        """Say whether any frame of the run so far trains."""
        frames = self._reader.frames
        if not self._has_trained and len(frames) > self._looked_through:
            new = itertools.islice(frames.values(), self._looked_through, None)
            self._has_trained = any(means(frame, "backward", "optimizer step") for frame in new)
            self._looked_through = len(frames)
        return self._has_trained

    def is_within(self, stack: int, phase: str) -> bool:
        """Say whether any frame is in the phase, even if another phase takes precedence.

        A batch that an evaluation needs lies within the evaluation, though it counts as data.
        """
        return bool(self._met_along(stack)[0] & self._rules_of(phase))

    def _rules_that(self, holds: Callable[[Rule], bool]) -> int:
        return sum(1 << number for number, rule in enumerate(self.rules) if holds(rule))

    def _user_line(self, stack: int, within: str | None = None) -> FrameRow | None:
        """Return the user's line that gives a stack its phase; None without code of the user's.

        It is their innermost line above or at the frame that decided: ``logits = model(images)``
        for a forward pass, even if the model runs code of theirs. ``within`` is the phase to look
        for.
        """
        frames = self._reader.frames_of(stack)[: self._decided_at(stack, within)]
        return next(reversed(own_frames(frames)), None)

    def is_by_hand(self, stack: int) -> bool:
        """Say whether code of the user's decides the phase of a stack, or runs below what does."""
        frames = self._reader.frames_of(stack)
        return bool(own_frames(frames[self._decided_at(stack) - 1 :]))

    def _decided_at(self, stack: int, within: str | None = None) -> int:
        """Return the number of frames from the outermost to the one that decides on the phase."""
        rule = self._rule(stack)
        is_on_any = rule is not None and not (self.rules[rule].leaf or self.rules[rule].innermost)
        deciding = 1 << rule if rule is not None and is_on_any else 0
        deciding = self._rules_of(within) if within else deciding
        frames = self._reader.frames_of(stack)
        met = (depth for depth, one in enumerate(frames, 1) if self._met(one) & deciding)
        return next(met, len(frames))

    def _update_line(self, stack: int) -> FrameRow | None:
        """Return the line that calls an optimizer's step, the user's if any; None outside of one.

        None as well below a backward pass, whose hooks may call one for each parameter.
        """
        outer: FrameRow | None = None
        for frame in self._reader.frames_of(stack):
            if means(frame, "optimizer step"):
                return outer
            if means(frame, "backward"):
                return None
            if outer is None or outer.is_library or not frame.is_library:
                outer = frame
        return None

    def _rule(self, stack: int) -> int | None:
        if stack not in self._rule_of_stack:
            along, innermost = self._met_along(stack)
            met = along | innermost
            if stack:
                met |= self._met(self._frame(stack)) & ~self._innermost_rules
            evaluates = met & self._rules_of(EVALUATION)
            if met & -met & self._rules_of(INFERENCE) and evaluates:
                met = evaluates  # its predictions are made for the evaluation
            awaited = met & self._rules_of_waits
            met &= ~awaited
            if awaited and met & -met & self._rules_of(WAITING):
                met = awaited
            # The lowest bit that is set.
            self._rule_of_stack[stack] = (met & -met).bit_length() - 1 if met else None
        return self._rule_of_stack[stack]

    def _met_along(self, stack: int) -> tuple[int, int]:
        """Return the rules that any frame of a stack matches, and those of the user's innermost."""
        unknown = []
        while stack not in self._met_by_stack:
            unknown.append(stack)
            stack = self._reader.stacks[stack].parent
        met, innermost = self._met_by_stack[stack]
        for inner in reversed(unknown):
            if not self._frame(inner).is_library:
                innermost = self._met(self._frame(inner)) & self._innermost_rules
            elif means(self._frame(inner), "child begins"):
                innermost = 0  # the frames so far are copies of the parent's
            met |= self._met(self._frame(inner)) & ~(self._leaf_rules | self._innermost_rules)
            self._met_by_stack[inner] = met, innermost
        return met, innermost

    def _frame(self, stack: int) -> FrameRow:
        return self._reader.frames[self._reader.stacks[stack].frame]


@functools.lru_cache(1)
def _rules_met(rules: tuple[Rule, ...]) -> Callable[[FrameRow], int]:
    """Return the function that gives the rules that a frame matches: a bit each."""
    tests = [frame_test(rule) for rule in rules]
    return functools.lru_cache(8_192)(
        lambda frame: sum(1 << number for number, test in enumerate(tests) if test(frame))
    )


def training_range(reader: RunReader, whole: Selection, phases: PhaseIndex) -> TimeRange | None:
    """Return when the first step in a selection's range of time begins and the last one ends.

    None without a step.
    """
    time = whole.time_in(reader)
    mains = Selection(processes=whole.processes, rank=whole.rank, main_threads=True)
    threads = mains.threads(reader)
    starts = range(*time, 60 * SECOND_NS)

    def steps(start_ns: int) -> list[tuple[int, int]]:
        part = TimeRange(start_ns, start_ns + starts.step).within(time)
        found = reader.stack_spans(part, threads)
        return [
            (first_ns, last_ns)
            for stack, first_ns, last_ns in found
            if phases.of_stack(stack) in STEP
        ]

    first = next(filter(None, map(steps, starts)), None)
    if first is None:
        return None
    last = first if len(starts) == 1 else next(filter(None, map(steps, reversed(starts))))
    end_ns = max(end_ns for _, end_ns in last)
    return TimeRange(min(start_ns for start_ns, _ in first), min(end_ns, time.to_ns))
