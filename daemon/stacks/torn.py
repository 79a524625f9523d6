"""Tells torn stacks from whole ones: by what stands in them, and by what is known of who calls whom.

py-spy reads a running interpreter without stopping it, so now and then the frames of two moments are glued together,
or memory is taken for a frame that is none. Such a stack does not begin where threads begin, has a frame that cannot
be one, or a call that its line cannot make. To drop a whole stack is worse than to keep a torn one, so a call counts as
impossible only where it is rare and everything that is known speaks against it.

Stacks are read from the leaf to the root, and the most frequent tear is a caller that went on to its next line before
its turn came. Where another line of the same function is known for the call, the stack is mended, not dropped; and so
is one that ends as a whole stack does which was seen.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from profd.daemon.stacks.failedreads import TornShares
from profd.daemon.stacks.source import Statement
from profd.daemon.stacks.suffixes import SuffixIndex, Whereabouts
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
_CALLS_HELD = 20_000
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
        # A loop goes from stack to stack in few ways, and deep ones make the same call many times.
        calls: Counter[tuple[Frame, Frame]] = Counter()
        for (before, stack), times in Counter(itertools.pairwise(itertools.chain(((),), stacks))).items():
            first = max(_common(before, stack), 1)
            for call, often in Counter(zip(stack[first - 1 :], stack[first:], strict=False)).items():
                calls[call] += often * times
        for (caller, callee), times in calls.items():
            self._count(caller, (callee.function, callee.file), times)

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

    def usual_line(self, caller: Frame, callee: Code) -> Frame | None:
        """Return the line of the caller's function that a function is mostly entered from, where that is known."""
        callers = self._callers[callee] if callee in self._callers else Counter()
        found = max((line for line in callers if line[:2] == caller[:2]), key=callers.__getitem__, default=None)
        return found if found is not None and callers[found] >= _USUAL_TIMES_BESIDE else None

    def _count(self, caller: Frame, callee: Code, times: int) -> None:
        callers = self._callers[callee]
        self._held += caller not in callers
        callers[caller] += times
        self._from[caller] += times


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
    """What is known of a process: the calls and stacks that were seen in it, and its source."""

    __slots__ = ("calls", "endings", "source", "torn_shares")

    def __init__(self, source: Source) -> None:
        self.calls = Calls()
        self.endings = SuffixIndex()
        self.torn_shares = TornShares()
        self.source = source


def mend(stacks: Sequence[Stack], roots: frozenset[str], evidence: Evidence) -> list[Stack | None]:
    """Return the stacks of one thread, in order of time, as they can have been; None in place of impossible ones.

    They become evidence first.
    """
    evidence.calls.add(stacks)
    evidence.source.allow_more()
    judge = _Judge(roots, evidence)
    times = Counter(stacks)
    mended = {stack: judge.mend(stack) for stack in times}
    evidence.endings.learn({stack: often for stack, often in times.items() if mended[stack] == stack})
    for stack, found in mended.items():
        if found is None:
            mended[stack] = evidence.endings.whole(stack, roots)
    evidence.torn_shares.learn(*_counted(times, mended))
    return [mended[stack] for stack in stacks]


def _counted(
    times: Mapping[Stack, int], mended: Mapping[Stack, Stack | None]
) -> tuple[dict[Stack, float], dict[Stack, float]]:
    """Return how often stacks were seen, as what they were or may have been, and how often they were torn."""
    seen: defaultdict[Stack, float] = defaultdict(float)
    torn: defaultdict[Stack, float] = defaultdict(float)
    known: Counter[Stack] = Counter()
    for stack, often in times.items():
        if (found := mended[stack]) is not None:
            known[found] += often
            seen[found] += often
            torn[found] += often if found != stack else 0
    lost = [stack for stack in times if mended[stack] is None]
    whereabouts = Whereabouts(known if lost else {})
    for stack in lost:
        for found, share in whereabouts.of(stack).items():
            seen[found] += times[stack] * share
            torn[found] += times[stack] * share
    return seen, torn


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

    def __init__(self, roots: frozenset[str], evidence: Evidence) -> None:
        self._roots = roots
        self._evidence = evidence
        self._plausible: dict[Frame, bool] = {}
        self._callers: dict[tuple[Frame, Frame], Frame | None] = {}

    def mend(self, stack: Stack) -> Stack | None:
        """Return a stack as it can have been; None where it cannot have been."""
        if not stack or stack[0].function not in self._roots or not all(map(self._is_plausible, stack)):
            return None
        callers = [self._caller(call) for call in itertools.pairwise(stack)]
        whole = [caller for caller in callers if caller is not None]
        if len(whole) < len(callers):
            return None
        return stack if whole == list(stack[:-1]) else (*whole, stack[-1])

    def _is_plausible(self, frame: Frame) -> bool:
        if frame not in self._plausible:
            self._plausible[frame] = is_plausible(frame)
        return self._plausible[frame]

    def _caller(self, call: tuple[Frame, Frame]) -> Frame | None:
        """Return the line that a call can have come from: the one that was read, or another one of its function."""
        if call not in self._callers:
            caller, callee = call
            calls, source = self._evidence.calls, self._evidence.source
            is_possible = is_possible_call(caller, callee, calls, source)
            self._callers[call] = caller if is_possible else calls.usual_line(caller, (callee.function, callee.file))
        return self._callers[call]


def _common(one: Stack, other: Stack) -> int:
    """Return how many frames two stacks begin with alike."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        # Frames of one recording are one object each: equality is asked only where they differ.
        if mine is not theirs and mine != theirs:
            break
        same += 1
    return same
