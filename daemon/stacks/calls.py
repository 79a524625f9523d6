"""Which function is called from which line: how often it was seen, and whether a line can have called a function."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from profd.daemon.stacks.source import Statements
from profd.daemon.store.records import Frame, Stack

Code = tuple[str, str]

# Of the times that a function was seen to be entered, those from a line that does not seem to call it. Beside another
# line of the same function less has to speak against a line: most functions call another one once.
_RARE_SHARE, _RARE_SHARE_BESIDE = 0.02, 0.1
_USUAL_TIMES, _USUAL_TIMES_BESIDE = 30, 10
# What has none of these is names, constants and commas, or part of a longer statement.
_MAY_CALL = re.compile(
    r"[^\w\s,='\":#]|\b(?:if|elif|while|for|in|is|not|and|or|with|import|class|await|yield|assert|del|except|raise)\b"
)
# About 400 bytes each. A training has some hundred calls, and few hundred more that are torn, ever new ones, at a time.
MOST_CALLS = 2_000
# Entered from any line: by the collector, by a signal, by a debugger.
_FROM_ANYWHERE = ("__del__", "_remove", "remove")


Key = TypeVar("Key")


def halved(times: Counter[Key]) -> Counter[Key]:
    """Return half of each count, without what is left with none: what was seen once or long ago is forgotten."""
    return Counter({key: count // 2 for key, count in times.items() if count > 1})


class Calls:
    """How often each function was seen to be entered from each line: what later stacks are judged by."""

    def __init__(self) -> None:
        self._callers: defaultdict[Code, Counter[Frame]] = defaultdict(Counter)
        self.times_left: Counter[Frame] = Counter()
        """How often any function was entered from a line."""
        self.held = 0

    def add(self, stacks: Sequence[Stack], order: Iterable[int]) -> None:
        """Count the calls of stacks that one thread had in this order: those that the one before had not."""
        if self.held > MOST_CALLS:
            kept = {callee: left for callee, callers in self._callers.items() if (left := halved(callers))}
            self._callers, self.times_left = defaultdict(Counter, kept), halved(self.times_left)
            self.held = sum(map(len, kept.values()))
        # A loop goes from stack to stack in few ways.
        calls: defaultdict[tuple[Frame, Frame], int] = defaultdict(int)
        for (before, now), times in Counter(itertools.pairwise((-1, *order))).items():
            first = common(stacks[before], stacks[now]) if before >= 0 else 0
            for call in itertools.pairwise(stacks[now][max(first - 1, 0) :]):
                calls[call] += times
        for (caller, callee), times in calls.items():
            callers = self._callers[callee[:2]]
            self.held += caller not in callers
            callers[caller] += times
            self.times_left[caller] += times

    def callers(self, callee: Code) -> Counter[Frame]:
        return self._callers.get(callee) or Counter()

    def usual_line(self, caller: Frame, callee: Code) -> Frame | None:
        """Return the line of the caller's function that a function is mostly entered from, where that is known."""
        callers = self.callers(callee)
        found = max((line for line in callers if line[:2] == caller[:2]), key=callers.__getitem__, default=None)
        return found if found is not None and callers[found] >= _USUAL_TIMES_BESIDE else None


def is_possible_call(caller: Frame, callee: Frame, calls: Calls, source: Statements | None) -> bool:
    """Say whether a line can have called a function; in doubt it can."""
    name = callee.function.rpartition(".")[2]
    callers = calls.callers(callee[:2])
    often, times = callers[caller], callers.total()
    # Nearly all calls are known by this.
    if often > max(2, _RARE_SHARE_BESIDE * times) or name in _FROM_ANYWHERE or source is None:
        return True
    usual = max(callers, key=callers.__getitem__, default=None)
    is_beside = usual is not None and usual != caller and usual[:2] == caller[:2]
    if not is_beside and often > max(2, _RARE_SHARE * times):
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
    if name.startswith(("__", "<")) or usual is None or usual == caller or times < enough:
        return True
    if not re.search(rf"\b{re.escape(name)}\b", source.line(usual.file, usual.line) or ""):
        # Not even where it belongs is it called by its name: then this line has to be known for calling others.
        left = calls.times_left[caller]
        if left < enough or often > _RARE_SHARE_BESIDE * left:
            return True
    statement = source.at(caller.file, caller.line)
    return statement is None or name in statement.names or statement.calls_unnamed


def common(one: Iterable[Frame], other: Iterable[Frame]) -> int:
    """Return how many frames two stacks begin with alike."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        # Frames of one recording are one object each: equality is asked only where they differ.
        if mine is not theirs and mine != theirs:
            break
        same += 1
    return same
