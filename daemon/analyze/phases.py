"""Phases: what a thread is doing, one word for each stack, by an ordered table of rules.

What a phase looks like on a screen (letter, color) stands here too, so that it looks the same everywhere.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import platformdirs

from profd.daemon.errors import UsageError
from profd.daemon.store.entities import Entities
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

BUILT_IN = Path(__file__).with_name("phases.toml")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A phase, and what one frame of a stack must be for the stack to belong to it.

    Every condition that is given must hold, of the same frame; ``phases.toml`` explains each.
    """

    phase: str
    function: tuple[str, ...] = ()
    module: tuple[str, ...] = ()
    source: str = ""
    library: bool | None = None
    leaf: bool = False
    innermost: bool = False


class _RuleFile(msgspec.Struct, forbid_unknown_fields=True):
    rule: tuple[Rule, ...] = ()


def load_rules(phases: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules in the order in which they are tried: the user's, then the built-in ones.

    ``phases`` are the names that a rule may give. Raises UsageError where the user's file is wrong.
    """
    known = frozenset(phases)
    home = os.environ.get("PROFD_HOME")
    own = (Path(home) if home else Path(platformdirs.user_config_dir("profd"))) / "phases.toml"
    return (*(read_rules(own, known) if own.is_file() else ()), *read_rules(BUILT_IN, known))


def read_rules(file: Path, phases: frozenset[str]) -> tuple[Rule, ...]:
    """Read a table of rules; raises UsageError that names what is wrong with it."""
    try:
        rules = msgspec.toml.decode(file.read_bytes(), type=_RuleFile).rule
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror})", "make it readable, or remove it") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} is no table of phase rules ({error})", "docs/phases.md shows what it holds"
        ) from error
    for number, rule in enumerate(rules, 1):
        where = f"{file}, rule {number}"
        if rule.phase not in phases:
            raise UsageError(f"{where}: there is no phase {rule.phase!r}", f"use one of: {'; '.join(sorted(phases))}")
        if not (rule.function or rule.module or rule.source):
            raise UsageError(f"{where}: it says nothing of a frame", "give it a function, a module or a source")
        try:
            re.compile(rule.source)
        except re.error as error:
            raise UsageError(
                f"{where}: {rule.source!r} is no regular expression ({error})", "mend its source"
            ) from error
    return rules


def _frame_test(rule: Rule) -> Callable[[FrameRow], bool]:
    """Return what says whether a frame meets the conditions of a rule, ``leaf`` and ``innermost`` aside."""
    function, module, source = _name_test(rule.function), _any_of(rule.module), re.compile(rule.source)
    return lambda frame: (
        (rule.library is None or frame.is_library == rule.library)
        and (not rule.module or module.match(frame.module_path) is not None)
        and (not rule.function or function(frame.function))
        and (not rule.source or source.search(frame.source or "") is not None)
    )


def _name_test(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that compares a name with patterns.

    Up to Python 3.10 a frame has ``step`` where later ones have ``Adam.step``. So a name without a dot is compared
    with the end of a pattern with one. Not so where that end is ``*``, which would meet every function there is, nor
    where the class has a wildcard: of ``*Loss.forward`` the end alone says nothing.
    """
    dotted = tuple(pattern for pattern in patterns if "." in pattern)
    split = [pattern.rpartition(".") for pattern in dotted]
    whole = _any_of(dotted)
    ends = _any_of(tuple(end for owner, _, end in split if end != "*" and not re.search(r"[*?\[]", owner)))
    plain = _any_of(tuple(pattern for pattern in patterns if "." not in pattern))

    def test(name: str) -> bool:
        qualified = whole if "." in name else ends
        return bool(qualified.match(name) or plain.match(name.rpartition(".")[2]))

    return test


@functools.lru_cache(1024)
def _any_of(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, globs)) or "(?!)")  # which nothing meets


class Phase(msgspec.Struct, frozen=True):
    """A phase: ``letter`` stands for it where there is no color, ``color`` is ``#RRGGBB``, safe for color blindness.

    ``short`` is its name where there is little room, ``doing`` what a thread does in it, as the end of a sentence.
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
LOGGING = "logging"
COMPILE = "compile"
STARTUP = "startup, import"
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
    Phase(LOGGING, "log", "G", "#999933", "writes logs"),
    Phase(COMPILE, "jit", "J", "#332288", "compiles"),
    Phase(STARTUP, "import", "I", "#BBBBBB", "starts up and imports"),
    Phase(WAITING, "wait", "W", "#777777", "waits, and nothing tells for what"),
    Phase(OTHER, "other", "·", "#999999", "does what no rule for phases knows"),
)
"""Every phase, in the order of a training step, then of what interrupts it."""

STEP = frozenset({FORWARD, LOSS, BACKWARD, OPTIMIZER})
"""The phases that a training is for."""
WITHOUT_WORK = frozenset({DATA_WAIT, SYNCHRONIZE, COLLECTIVE, WAITING, COPY})
"""Phases in which the main thread itself has nothing to do."""
WITHOUT_STEP = frozenset({STARTUP, COMPILE, EVALUATION, CHECKPOINT})
"""Phases in which no step is made."""
_BY_NAME = {phase.name: phase for phase in PHASES}


def phase_named(name: str) -> Phase:
    """Return the phase of this name; raises KeyError where there is none."""
    return _BY_NAME[name]


def own_frame(frames: Sequence[FrameRow]) -> FrameRow | None:
    """Return the innermost frame of the user's own code in a stack; None where there is none."""
    return next((frame for frame in reversed(frames) if not frame.is_library), None)


class PhaseIndex:
    """The phase of every stack of a run.

    A stack meets a rule where any of its frames does (its innermost one, or the innermost of the user's own, for rules
    on these), and the first rule in order decides. What the frames of a stack meet is what its parent's meet and what
    its own meets: one bit a rule, the first rule lowest, so that each stack costs one step however deep it is.
    """

    def __init__(self, reader: RunReader | Entities, rules: tuple[Rule, ...] | None = None) -> None:
        """Index the stacks of ``reader``, those written later too.

        ``rules`` are those of the two tables where none are given; raises UsageError where the user's is wrong.
        """
        self._reader = reader
        self.rules = load_rules(_BY_NAME) if rules is None else rules
        self._tests = [_frame_test(rule) for rule in self.rules]
        self._leaf_rules = sum(1 << number for number, rule in enumerate(self.rules) if rule.leaf)
        self._innermost_rules = sum(1 << number for number, rule in enumerate(self.rules) if rule.innermost)
        self._met_by_frame: dict[int, int] = {}
        # The stack 0 is the parent of the roots.
        self._met_by_stack: dict[int, int] = {0: 0}
        self._met_by_innermost: dict[int, int] = {0: 0}
        self._rule_of_stack: dict[int, int | None] = {}

    def of_stack(self, stack: int) -> str:
        rule = self._rule(stack)
        return OTHER if rule is None else self.rules[rule].phase

    def user_line(self, stack: int) -> FrameRow | None:
        """Return the line of the user's code that a stack owes its phase to; None where no user code is in it.

        That is the innermost line of theirs above or at the frame that decided: ``logits = model(images)`` for a
        forward pass, however much of their own code the model runs.
        """
        rule = self._rule(stack)
        is_on_any = rule is not None and not (self.rules[rule].leaf or self.rules[rule].innermost)
        deciding = 1 << rule if rule is not None and is_on_any else 0
        found = None
        for frame in self._reader.frames_of(stack):
            if not frame.is_library:
                found = frame
            if deciding and self._met(frame) & deciding:
                break
        return found

    def _rule(self, stack: int) -> int | None:
        if stack not in self._rule_of_stack:
            met = self._met_along(stack) | self._met_innermost(stack)
            if stack:
                met |= self._met(self._frame(stack)) & ~self._innermost_rules
            # The lowest bit that is set.
            self._rule_of_stack[stack] = (met & -met).bit_length() - 1 if met else None
        return self._rule_of_stack[stack]

    def _met_along(self, stack: int) -> int:
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
        above = []
        while stack not in self._met_by_innermost and self._frame(stack).is_library:
            above.append(stack)
            stack = self._reader.stacks[stack].parent
        if stack not in self._met_by_innermost:
            self._met_by_innermost[stack] = self._met(self._frame(stack)) & self._innermost_rules
        met = self._met_by_innermost[stack]
        self._met_by_innermost.update(dict.fromkeys(above, met))
        return met

    def _frame(self, stack: int) -> FrameRow:
        return self._reader.frames[self._reader.stacks[stack].frame]

    def _met(self, frame: FrameRow) -> int:
        if frame.id not in self._met_by_frame:
            self._met_by_frame[frame.id] = sum(1 << number for number, test in enumerate(self._tests) if test(frame))
        return self._met_by_frame[frame.id]
