"""Stacks that were read without their outer frames, known by the inner ones. Pure.

py-spy reads a stack from the leaf to the root. Where the thread returns from a function meanwhile, the way from there
to the root is lost, and what was read is the end of a stack that may well have been seen whole at another time.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping

from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

_STACKS_HELD = 1_000


class SuffixIndex:
    """The whole stacks of a process, by how they end."""

    def __init__(self) -> None:
        self._stacks: defaultdict[Frame, Counter[Stack]] = defaultdict(Counter)
        self._held = 0

    def learn(self, seen: Mapping[Stack, int]) -> None:
        """Learn whole stacks, and how often each was seen."""
        if self._held > _STACKS_HELD:  # a program that makes up functions, or recurses: begin anew
            self._stacks.clear()
            self._held = 0
        for stack, times in seen.items():
            known = self._stacks[stack[-1]]
            self._held += stack not in known
            known[stack] += times

    def whole(self, torn: Stack, roots: frozenset[str]) -> Stack | None:
        """Return the stack that ends most like a torn one, and of these the most frequent; None of no known ending.

        ``roots`` are the functions that it may begin with.
        """
        known = self._stacks.get(torn[-1]) if torn else None
        if known is None:
            return None
        possible = [stack for stack in known if stack[0].function in roots]
        return max(possible, key=lambda stack: (_alike(stack, torn), known[stack]), default=None)


class Whereabouts:
    """Where a thread may have been whose stack was torn: the stacks that were seen, by their functions and files."""

    def __init__(self, seen: Mapping[Stack, int]) -> None:
        self._by_function = _index(seen, _function)
        self._by_file = _index(seen, _file)

    def of(self, torn: Stack) -> dict[Stack, float]:
        """Return which stacks a torn one of no known ending may have been: shares that add up to 1.

        These are those with the same function in them, or else one of the same file; none where there is no such.
        """
        by_function = (self._by_function.get(_function(frame)) for frame in reversed(torn))
        by_file = (self._by_file.get(_file(frame)) for frame in reversed(torn))
        found = next((stacks for stacks in itertools.chain(by_function, by_file) if stacks), {})
        whole = sum(found.values())
        return {stack: times / whole for stack, times in found.items()}


def _index(seen: Mapping[Stack, int], key: Callable[[Frame], Hashable]) -> defaultdict[Hashable, dict[Stack, int]]:
    """Return stacks by the keys of their frames, in the order in which they are given."""
    found: defaultdict[Hashable, dict[Stack, int]] = defaultdict(dict)
    for stack, times in seen.items():
        for frame in stack:
            found[key(frame)][stack] = times
    return found


def _function(frame: Frame) -> tuple[str, str]:
    return frame.function, frame.file


def _file(frame: Frame) -> str:
    return frame.file


def _alike(one: Stack, other: Stack) -> int:
    """Return with how many frames two stacks end alike."""
    same = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        same += 1
    return same
