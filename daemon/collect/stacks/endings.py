"""Stacks that were read without their outer frames, known by the inner ones. Pure.

py-spy reads a stack from the leaf to the root. Where the thread returns from a function meanwhile, the way from there
to the root is lost, and what was read is the end of a stack that may well have been seen whole at another time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

_STACKS_HELD = 1_000


class Endings:
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


def whereabouts(torn: Stack, seen: Mapping[Stack, int]) -> dict[Stack, float]:
    """Return which of the stacks that were seen a torn one of no known ending may have been: shares that add up to 1.

    These are those with the same function in them, or else one of the same file; none where there is no such.
    """
    for like in (_function, _file):
        for frame in reversed(torn):
            found = {stack: times for stack, times in seen.items() if any(like(one) == like(frame) for one in stack)}
            if found:
                whole = sum(found.values())
                return {stack: times / whole for stack, times in found.items()}
    return {}


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
