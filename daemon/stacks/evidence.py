"""Collect what the stacks seen in a process tell about it.

That is which calls it makes, how its stacks end, and at which places reads are torn.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from profd.daemon.stacks.source import Statements
from profd.daemon.store.records import Frame, Stack

Code = tuple[str, str]
Key = TypeVar("Key")

# A training run has some hundred of each, and ever new torn ones: above these limits, what was seen
# seldom is forgotten. A call takes 400 bytes, a stack or a place some hundred.
MOST_CALLS, MOST_STACKS, MOST_PLACES = 2_000, 500, 2_000

# A line is suspect if it made at most this share of a function's entries and does not seem to call
# it. If another line of the same function is the usual caller, the evidence may be weaker: most
# functions call another one once.
_RARE_SHARE, _RARE_SHARE_BESIDE = 0.02, 0.1
_USUAL_TIMES, _USUAL_TIMES_BESIDE = 30, 10
# A line without any of these holds only names, constants and commas, or part of a longer statement.
_MAY_CALL = re.compile(
    r"[^\w\s,='\":#]|\b(?:if|elif|while|for|in|is|not|and|or|with|import|class|await|yield"
    r"|assert|del|except|raise)\b"
)
# Functions that are entered from any line: by the collector, by a signal, by a debugger.
_FROM_ANYWHERE = ("__del__", "_remove", "remove")


def halved(times: Counter[Key]) -> Counter[Key]:
    """Return half of each count, without those that fall to 0.

    What was seen once or long ago is forgotten.
    """
    return Counter({key: count // 2 for key, count in times.items() if count > 1})


class Calls:
    """How often each function was seen to be entered from each line.

    Later stacks are judged by these counts.
    """

    def __init__(self) -> None:
        self._callers: defaultdict[Code, Counter[Frame]] = defaultdict(Counter)
        self.times_left: Counter[Frame] = Counter()
        """How often a line was seen to enter any function."""
        self.held = 0

    def add(self, stacks: Sequence[Stack], order: Iterable[int]) -> None:
        """Count the calls of stacks that one thread had in this order.

        A call counts only if the stack before did not have it.
        """
        if self.held > MOST_CALLS:
            kept = {
                callee: left
                for callee, callers in self._callers.items()
                if (left := halved(callers))
            }
            self._callers, self.times_left = defaultdict(Counter, kept), halved(self.times_left)
            self.held = sum(map(len, kept.values()))
        # A loop goes from stack to stack in few ways, so equal steps are counted together.
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
        """Return the line of the caller's function from which a function is mostly entered.

        Returns None if that is not known.
        """
        callers = self.callers(callee)
        found = max(
            (line for line in callers if line[:2] == caller[:2]),
            key=callers.__getitem__,
            default=None,
        )
        return found if found is not None and callers[found] >= _USUAL_TIMES_BESIDE else None


def is_possible_call(caller: Frame, callee: Frame, calls: Calls, source: Statements | None) -> bool:
    """Return whether a line can have called a function; True in doubt."""
    name = callee.function.rpartition(".")[2]
    if _is_frequent(caller, calls.callers(callee[:2])) or name in _FROM_ANYWHERE or source is None:
        return True
    # Modules run once: while a script imports, every call is rare.
    text = source.line(caller.file, caller.line) if caller.function != "<module>" else None
    if text is None or name in text or "import" in text:
        return True
    if not _MAY_CALL.search(text):
        statement = source.at(caller.file, caller.line)
        if statement is not None and not statement.may_call and name not in statement.names:
            return False
    # Functions without a name of their own are called in ways that no text shows.
    return name.startswith(("__", "<")) or not _is_elsewhere(caller, callee, calls, source)


def _is_frequent(caller: Frame, callers: Counter[Frame]) -> bool:
    """Return whether a line calls a function so often that this alone is enough."""
    often, times = callers[caller], callers.total()
    # This settles nearly all calls.
    if often > max(2, _RARE_SHARE_BESIDE * times):
        return True
    return often > max(2, _RARE_SHARE * times) and not _is_beside(caller, _most_usual(callers))


def _is_elsewhere(caller: Frame, callee: Frame, calls: Calls, source: Statements) -> bool:
    """Return whether nearly all entries of a function come from another line."""
    name = callee.function.rpartition(".")[2]
    callers = calls.callers(callee[:2])
    usual = _most_usual(callers)
    enough = _USUAL_TIMES_BESIDE if _is_beside(caller, usual) else _USUAL_TIMES
    if usual is None or usual == caller or callers.total() < enough:
        return False
    if not re.search(rf"\b{re.escape(name)}\b", source.line(usual.file, usual.line) or ""):
        # Even the usual line does not name the function: then this line has to be known for calling
        # others before the call is rejected.
        left = calls.times_left[caller]
        if left < enough or callers[caller] > _RARE_SHARE_BESIDE * left:
            return False
    statement = source.at(caller.file, caller.line)
    return statement is not None and name not in statement.names and not statement.calls_unnamed


def _most_usual(callers: Counter[Frame]) -> Frame | None:
    return max(callers, key=callers.__getitem__, default=None)


def _is_beside(caller: Frame, usual: Frame | None) -> bool:
    """Say whether the usual caller is another line of the same function."""
    return usual is not None and usual != caller and usual[:2] == caller[:2]


class SuffixIndex:
    """The complete stacks of a process, by how they end."""

    def __init__(self) -> None:
        self._stacks: defaultdict[Frame, Counter[Stack]] = defaultdict(Counter)
        self.held = 0

    def learn(self, seen: Mapping[Stack, int]) -> None:
        if self.held > MOST_STACKS:
            kept = {leaf: left for leaf, stacks in self._stacks.items() if (left := halved(stacks))}
            self._stacks, self.held = defaultdict(Counter, kept), sum(map(len, kept.values()))
        for stack, times in seen.items():
            known = self._stacks[stack[-1]]
            self.held += stack not in known
            known[stack] += times

    def whole(self, torn: Stack, roots: frozenset[str]) -> Stack | None:
        """Return the stack from ``roots`` that ends most like a torn one, if any ends like it.

        If several do, it is the most frequent of them.
        """
        known: Mapping[Stack, int] = self._stacks.get(torn[-1], {}) if torn else {}
        possible = [stack for stack in known if stack[0].function in roots]
        return max(
            possible,
            key=lambda stack: (common(stack[::-1], torn[::-1]), known[stack]),
            default=None,
        )


# A place that was seen seldom is judged mostly by the place around it, which counts as this many
# sightings.
_AROUND = 1
# Above this share all places count as equal: the rate of failed reads and the rate of torn reads
# are not the same.
_MOST = 0.5


class _Prefix:
    """A prefix of stacks: how often it was seen and torn, and how the stacks go on from it.

    ``seen`` counts both whole and torn stacks.
    """

    __slots__ = ("inner", "seen", "torn")

    def __init__(self) -> None:
        self.seen = self.torn = 0.0
        self.inner: dict[Frame, _Prefix] = {}

    def halve(self) -> int:
        """Halve all counts, and forget the places below that were seen less than twice.

        Returns how many places are left inside this one.
        """
        self.seen, self.torn = self.seen / 2, self.torn / 2
        self.inner = {frame: place for frame, place in self.inner.items() if place.seen >= 2}
        return sum(1 + place.halve() for place in self.inner.values())


class TornShares:
    """The torn share of a process's stacks, by their prefix.

    ``held`` is how many prefixes are known.
    """

    def __init__(self) -> None:
        self._outside = _Prefix()
        self.held = 0

    def learn(self, seen: Mapping[Stack, float], torn: Mapping[Stack, float]) -> None:
        """Add how often stacks were seen, whole or torn, and how often they were torn."""
        if self.held > MOST_PLACES:
            self.held = self._outside.halve()
        for stack, times in seen.items():
            torn_times = torn.get(stack, 0.0)
            for place in self._along(stack, makes=True):
                place.seen += times
                place.torn += torn_times

    def of(self, stack: Stack) -> float:
        """Return how likely a read fails in a stack, relative to other stacks.

        It is the same for all stacks if none was ever torn.
        """
        around = self._outside
        if not around.torn:
            return _MOST
        share = around.torn / around.seen
        for place in self._along(stack):
            if place.seen < around.seen:  # else it is the same place
                share = (place.torn + _AROUND * share) / (place.seen + _AROUND)
                around = place
        return min(share, _MOST)

    def _along(self, stack: Stack, *, makes: bool = False) -> Iterator[_Prefix]:
        place = self._outside
        yield place
        for frame in stack[:32]:
            inner = place.inner.get(frame)
            if inner is None:
                if not makes:
                    return
                inner = place.inner[frame] = _Prefix()
                self.held += 1
            place = inner
            yield place


class StackEvidence:
    """All that is known of a process: its calls, its stacks, its torn shares, and its source."""

    def __init__(self, source: Statements | None = None) -> None:
        self.calls = Calls()
        self.endings = SuffixIndex()
        self.torn_shares = TornShares()
        self.source = source


def common(one: Iterable[Frame], other: Iterable[Frame]) -> int:
    """Return how many leading frames two stacks have in common."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        # Within a recording each frame is one object: compare by value only if the objects differ.
        if mine is not theirs and mine != theirs:
            break
        same += 1
    return same
