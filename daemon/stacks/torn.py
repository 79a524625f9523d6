"""Finds torn stacks, by their frames and by the calls that were seen, and mends them where it can. Pure.

py-spy reads a running interpreter without stopping it, so now and then the frames of two moments are glued together,
or memory is taken for a frame that is none. Such a stack does not begin where threads begin, has a frame that cannot
be one, or a call that its line cannot make. To drop a whole stack is worse than to keep a torn one, so a call counts as
impossible only where it is rare and everything that is known speaks against it.

Stacks are read from the leaf to the root, and the most frequent tear is a caller that went on to its next line before
its turn came. Where another line of the same function is known for the call, the stack is mended, not dropped. Where
the thread returns from a function meanwhile, the outer frames are lost, and the inner ones are often those of a whole
stack that was seen: then the torn one is taken for that.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from profd.daemon.stacks.failedreads import TornShares
from profd.daemon.stacks.source import Statements
from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]
Code = tuple[str, str]

# Where CPython starts a thread's Python code: scripts, `-m` and interactive code in the main thread, threading's
# bootstrap elsewhere (with its class before it from Python 3.11 on).
ROOT_FUNCTIONS = frozenset({"<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"})
# Of the times that a function was seen to be entered, those from a line that does not seem to call it. Beside another
# line of the same function less has to speak against a line: most functions call another one once.
_RARE_SHARE, _RARE_SHARE_BESIDE = 0.02, 0.1
_USUAL_TIMES, _USUAL_TIMES_BESIDE = 30, 10
# What has none of these is names, constants and commas, or part of a longer statement.
_MAY_CALL = re.compile(
    r"[^\w\s,='\":#]|\b(?:if|elif|while|for|in|is|not|and|or|with|import|class|await|yield|assert|del|except|raise)\b"
)
# Entered from any line: by the collector, by a signal, by a debugger.
_FROM_ANYWHERE = ("__del__", "_remove", "remove")


class Calls:
    """How often each function was seen to be entered from each line: what later stacks are judged by."""

    def __init__(self) -> None:
        self._callers: defaultdict[Code, Counter[Frame]] = defaultdict(Counter)
        self.times_left: Counter[Frame] = Counter()
        """How often any function was entered from a line."""
        self._held = 0

    def add(self, stacks: Iterable[Stack]) -> None:
        """Count the calls of the stacks of one thread, in order of time: those that the stack before had not."""
        if self._held > 20_000:  # a program that makes up functions: begin anew, everything is unsure again
            self._callers.clear()
            self.times_left.clear()
            self._held = 0
        # A loop goes from stack to stack in few ways, and deep ones make the same call many times.
        calls: Counter[tuple[Frame, Frame]] = Counter()
        for (before, stack), times in Counter(itertools.pairwise(itertools.chain(((),), stacks))).items():
            first = max(_common(before, stack), 1)
            for call, often in Counter(zip(stack[first - 1 :], stack[first:], strict=False)).items():
                calls[call] += often * times
        for (caller, callee), times in calls.items():
            callers = self._callers[callee[:2]]
            self._held += caller not in callers
            callers[caller] += times
            self.times_left[caller] += times

    def callers(self, callee: Code) -> Counter[Frame]:
        return self._callers.get(callee) or Counter()

    def usual_line(self, caller: Frame, callee: Code) -> Frame | None:
        """Return the line of the caller's function that a function is mostly entered from, where that is known."""
        callers = self.callers(callee)
        found = max((line for line in callers if line[:2] == caller[:2]), key=callers.__getitem__, default=None)
        return found if found is not None and callers[found] >= _USUAL_TIMES_BESIDE else None


class SuffixIndex:
    """The whole stacks of a process, by how they end."""

    def __init__(self) -> None:
        self._stacks: defaultdict[Frame, Counter[Stack]] = defaultdict(Counter)
        self._held = 0

    def learn(self, seen: Mapping[Stack, int]) -> None:
        if self._held > 1_000:  # a program that makes up functions, or recurses: begin anew
            self._stacks.clear()
            self._held = 0
        for stack, times in seen.items():
            known = self._stacks[stack[-1]]
            self._held += stack not in known
            known[stack] += times

    def whole(self, torn: Stack, roots: frozenset[str]) -> Stack | None:
        """Return the most frequent of the stacks from ``roots`` that end most like a torn one, if any ends so."""
        known: Mapping[Stack, int] = self._stacks.get(torn[-1], {}) if torn else {}
        possible = [stack for stack in known if stack[0].function in roots]
        return max(possible, key=lambda stack: (_common(stack[::-1], torn[::-1]), known[stack]), default=None)


def valid_roots(stacks: Iterable[tuple[Stack, int]]) -> frozenset[str]:
    """Return the known roots of one thread's stacks, else, as for threads of C libraries, its most frequent one."""
    roots: Counter[str] = Counter()
    for stack, samples in stacks:
        if stack:
            roots[stack[0].function] += samples
    return frozenset(ROOT_FUNCTIONS & roots.keys() or (root for root, _ in roots.most_common(1)))


class Evidence:
    """What is known of a process: the calls and stacks that were seen in it, and its source."""

    __slots__ = ("calls", "endings", "source", "torn_shares")

    def __init__(self, source: Statements | None = None) -> None:
        self.calls = Calls()
        self.endings = SuffixIndex()
        self.torn_shares = TornShares()
        self.source = source


def mend(stacks: Sequence[Stack], roots: frozenset[str], evidence: Evidence) -> list[Stack | None]:
    """Learn from stacks of one thread, in order of time, and return them as they can have been, else None."""
    calls, source = evidence.calls, evidence.source
    calls.add(stacks)
    if source is not None:
        source.allow_more()
    can_be = functools.cache(is_plausible)

    @functools.cache
    def caller_of(call: tuple[Frame, Frame]) -> Frame | None:
        """Return the line that a call can have come from: the one that was read, or another one of its function."""
        caller, callee = call
        return caller if is_possible_call(caller, callee, calls, source) else calls.usual_line(caller, callee[:2])

    def possible(stack: Stack) -> Stack | None:
        if not stack or stack[0].function not in roots or not all(map(can_be, stack)):
            return None
        callers = [caller_of(call) for call in itertools.pairwise(stack)]
        whole = [caller for caller in callers if caller is not None]
        return (*whole, stack[-1]) if len(whole) == len(callers) else None

    times = Counter(stacks)
    mended = {stack: possible(stack) for stack in times}
    evidence.endings.learn({stack: often for stack, often in times.items() if mended[stack] == stack})
    for stack, found in mended.items():
        if found is None:
            mended[stack] = evidence.endings.whole(stack, roots)
    evidence.torn_shares.learn(*_counted(times, mended))
    return [mended[stack] for stack in stacks]


def _counted(times: Mapping[Stack, int], mended: Mapping[Stack, Stack | None]) -> tuple[dict[Stack, float], ...]:
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
    by_function: defaultdict[Code, dict[Stack, int]] = defaultdict(dict)
    by_file: defaultdict[str, dict[Stack, int]] = defaultdict(dict)
    for stack, often in known.items() if lost else ():
        for frame in stack:
            by_function[frame[:2]][stack] = often
            by_file[frame.file][stack] = often
    for stack in lost:
        # It may have been any stack with the same function in it, or else any of the same file.
        functions = (by_function.get(frame[:2]) for frame in reversed(stack))
        files = (by_file.get(frame.file) for frame in reversed(stack))
        near = next((stacks for stacks in itertools.chain(functions, files) if stacks), {})
        whole = sum(near.values())
        for one, often in near.items():
            seen[one] += times[stack] * (often / whole)
            torn[one] += times[stack] * (often / whole)
    return seen, torn


def is_plausible(frame: Frame) -> bool:
    """Say whether a frame can be one: memory that is taken for a frame has no readable names."""
    is_named = bool(frame.function and frame.file) and frame.function.isprintable() and frame.file.isprintable()
    return is_named and not frame.file.isdigit() and 0 <= frame.line <= 1_000_000


def is_possible_call(caller: Frame, callee: Frame, calls: Calls, source: Statements | None) -> bool:
    """Say whether a line can have called a function; in doubt it can."""
    name = callee.function.rpartition(".")[2]
    callers = calls.callers(callee[:2])
    usual = max(callers, key=callers.__getitem__, default=None)
    is_beside = usual is not None and usual != caller and usual[:2] == caller[:2]
    share = _RARE_SHARE_BESIDE if is_beside else _RARE_SHARE
    if callers[caller] > max(2, share * callers.total()) or name in _FROM_ANYWHERE or source is None:
        return True
    # Modules run once: while a script imports, everything is rare.
    text = source.line(caller.file, caller.line) if caller.function != "<module>" else None
    if text is None or name in text or "import" in text:
        return True
    if not _MAY_CALL.search(text):
        statement = source.at(caller.file, caller.line)
        if statement is not None and not statement.may_call and name not in statement.names:
            return False
    # It is not, where the function is entered from another line so often that this one would be a wonder. Whatever has
    # no name of its own is called in ways that no text shows.
    enough = _USUAL_TIMES_BESIDE if is_beside else _USUAL_TIMES
    if name.startswith(("__", "<")) or usual is None or usual == caller or callers.total() < enough:
        return True
    if not re.search(rf"\b{re.escape(name)}\b", source.line(usual.file, usual.line) or ""):
        # Not even where it belongs is it called by its name: then this line has to be known for calling others.
        left = calls.times_left[caller]
        if left < enough or callers[caller] > _RARE_SHARE_BESIDE * left:
            return True
    statement = source.at(caller.file, caller.line)
    return statement is None or name in statement.names or statement.calls_unnamed


def _common(one: Iterable[Frame], other: Iterable[Frame]) -> int:
    """Return how many frames two stacks begin with alike."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        # Frames of one recording are one object each: equality is asked only where they differ.
        if mine is not theirs and mine != theirs:
            break
        same += 1
    return same
