"""Tells torn stacks from whole ones: by what stands in them, and by what is known of who calls whom.

py-spy reads a running interpreter without stopping it, so now and then the frames of two moments are glued together,
or memory is taken for a frame that is none. Such a stack does not begin where threads begin, has a frame that cannot
be one, or a call that its line cannot make. To drop a whole stack is worse than to keep a torn one, so a call counts as
impossible only where it is rare and everything that is known speaks against it.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from profd.daemon.collect.statements import Statement
from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]
Code = tuple[str, str]

# Where CPython starts a thread's Python code: scripts, `-m` and interactive code in the main thread, threading's
# bootstrap elsewhere (with its class before it from Python 3.11 on).
ROOT_FUNCTIONS = frozenset({"<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"})
_MOST_LINES = 1_000_000
# Of the times that a function was seen to be entered, those from a line that does not seem to call it.
_RARE_TIMES = 2
_RARE_SHARE = 0.02
# Beside another line of the same function less has to speak against a line: most functions call another one once.
_RARE_SHARE_BESIDE = 0.1
_USUAL_TIMES = 30
_USUAL_TIMES_BESIDE = 10
_CALLS_HELD = 50_000
# What has none of these is names, constants and commas, or part of a longer statement.
_MAY_CALL = re.compile(
    r"[^\w\s,='\":#]|\b(?:if|elif|while|for|in|is|not|and|or|with|import|class|await|yield|assert|del|except|raise)\b"
)
# Entered from any line: by the collector, by a signal, by a debugger.
_FROM_ANYWHERE = ("__del__", "_remove", "remove")


class Source(Protocol):
    """The source files of the target."""

    def line(self, file: str, line: int, /) -> str | None:
        """Return the text of a line; None where it cannot be read."""
        ...

    def at(self, file: str, line: int, /) -> Statement | None:
        """Return the statement at a line; None where nothing is known of it."""
        ...

    def allow_more(self) -> None:
        """Let another few files be read."""
        ...


class NoSource:
    """Source files that nobody can read."""

    def line(self, file: str, line: int, /) -> str | None:
        """Return None."""
        return None

    def at(self, file: str, line: int, /) -> Statement | None:
        """Return None."""
        return None

    def allow_more(self) -> None:
        """Do nothing."""


class Calls:
    """How often each function was seen to be entered from each line: what later stacks are judged by."""

    def __init__(self) -> None:
        self._callers: defaultdict[Code, Counter[Frame]] = defaultdict(Counter)
        self._from: Counter[Frame] = Counter()
        self._held = 0

    def add(self, stacks: Iterable[Stack]) -> None:
        """Count the calls of the stacks of one thread, in order of time: those that the stack before had not."""
        if self._held > _CALLS_HELD:  # a program that makes up functions: begin anew, everything is unsure again
            self._callers.clear()
            self._from.clear()
            self._held = 0
        before: Stack = ()
        for stack in stacks:
            for depth in range(max(_common(before, stack), 1), len(stack)):
                self._count(stack[depth - 1], (stack[depth].function, stack[depth].file))
            before = stack

    def times(self, caller: Frame, callee: Code) -> int:
        """Return how often a function was entered from a line."""
        return self._callers[callee][caller] if callee in self._callers else 0

    def times_entered(self, callee: Code) -> int:
        """Return how often a function was entered."""
        return self._callers[callee].total() if callee in self._callers else 0

    def times_left(self, caller: Frame) -> int:
        """Return how often any function was entered from a line."""
        return self._from[caller]

    def usual_caller(self, callee: Code) -> Frame | None:
        """Return the line that a function is mostly entered from."""
        found = self._callers[callee].most_common(1) if callee in self._callers else []
        return found[0][0] if found else None

    def _count(self, caller: Frame, callee: Code) -> None:
        callers = self._callers[callee]
        self._held += caller not in callers
        callers[caller] += 1
        self._from[caller] += 1


def valid_roots(stacks: Iterable[tuple[Stack, int]]) -> frozenset[str]:
    """Return the functions that the stacks of one thread may begin with, from its stacks and their samples.

    A thread that a C library started calls into Python wherever it likes: where no stack begins at a known root, the
    one that most samples begin at is taken for the root.
    """
    roots: Counter[str] = Counter()
    for stack, samples in stacks:
        if stack:
            roots[stack[0].function] += samples
    known = ROOT_FUNCTIONS & roots.keys()
    if known or not roots:
        return frozenset(known)
    return frozenset({roots.most_common(1)[0][0]})


class Evidence:
    """What is known of a process: the calls that were seen in it, and its source."""

    __slots__ = ("calls", "source")

    def __init__(self, source: Source) -> None:
        self.calls = Calls()
        self.source = source


def are_torn(stacks: Sequence[Stack], roots: frozenset[str], evidence: Evidence) -> list[bool]:
    """Say of each stack of one thread, in order of time, whether it is impossible; they become evidence first."""
    evidence.calls.add(stacks)
    evidence.source.allow_more()
    judge = _Judge(evidence)
    found: list[bool] = []
    before: Stack = ()
    torn_at = -1
    for stack in stacks:
        # What the stack before had too was judged with it: stacks may be thousands of frames deep.
        same = _common(before, stack)
        if not 0 <= torn_at < same:
            torn_at = next((depth for depth in range(same, len(stack)) if not judge.is_possible(stack, depth)), -1)
        found.append(not stack or stack[0].function not in roots or torn_at >= 0)
        before = stack
    return found


def is_plausible(frame: Frame) -> bool:
    """Say whether a frame can be one: memory that is taken for a frame has no readable names."""
    return (
        bool(frame.function and frame.file)
        and frame.function.isprintable()
        and frame.file.isprintable()
        and not frame.file.isdigit()
        and 0 <= frame.line <= _MOST_LINES
    )


def is_possible_call(caller: Frame, callee: Frame, calls: Calls, source: Source) -> bool:
    """Say whether a line can have called a function; in doubt it can."""
    code, name = (callee.function, callee.file), callee.function.rpartition(".")[2]
    usual = calls.usual_caller(code)
    is_beside = usual is not None and usual != caller and usual[:2] == caller[:2]
    share = _RARE_SHARE_BESIDE if is_beside else _RARE_SHARE
    if calls.times(caller, code) > max(_RARE_TIMES, share * calls.times_entered(code)) or name in _FROM_ANYWHERE:
        return True
    # Modules run once: while a script imports, everything is rare.
    text = source.line(caller.file, caller.line) if caller.function != "<module>" else None
    if text is None or name in text or "import" in text:
        return True
    if not _MAY_CALL.search(text) and not _may_call(caller, name, source):
        return False
    enough = _USUAL_TIMES_BESIDE if is_beside else _USUAL_TIMES
    return not _is_called_elsewhere(caller, code, enough, calls, source)


def _may_call(caller: Frame, name: str, source: Source) -> bool:
    statement = source.at(caller.file, caller.line)
    return statement is None or statement.may_call or name in statement.names


def _is_called_elsewhere(caller: Frame, callee: Code, enough: int, calls: Calls, source: Source) -> bool:
    """Say whether a function is entered from another line so often that this one would be a wonder."""
    name = callee[0].rpartition(".")[2]
    usual = calls.usual_caller(callee)
    # Whatever has no name of its own is called in ways that no text shows.
    if name.startswith(("__", "<")) or usual is None or usual == caller or calls.times_entered(callee) < enough:
        return False
    if not re.search(rf"\b{re.escape(name)}\b", source.line(usual.file, usual.line) or ""):
        # Not even where it belongs is it called by its name: then this line has to be known for calling others.
        left = calls.times_left(caller)
        if left < enough or calls.times(caller, callee) > _RARE_SHARE_BESIDE * left:
            return False
    statement = source.at(caller.file, caller.line)
    return not (statement is None or name in statement.names or statement.calls_unnamed)


class _Judge:
    """Judges frames and calls, each once."""

    def __init__(self, evidence: Evidence) -> None:
        self._is_plausible = functools.cache(is_plausible)
        self._is_possible_call = functools.cache(
            functools.partial(is_possible_call, calls=evidence.calls, source=evidence.source)
        )

    def is_possible(self, stack: Stack, depth: int) -> bool:
        """Say whether a frame of a stack can be one, and be called by the frame before."""
        if not self._is_plausible(stack[depth]):
            return False
        return depth == 0 or bool(self._is_possible_call(stack[depth - 1], stack[depth]))


def _common(one: Stack, other: Stack) -> int:
    """Return how many frames two stacks begin with alike."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        # Frames of one recording are one object each: equality is asked only where they differ.
        if mine is not theirs and mine != theirs:
            break
        same += 1
    return same
