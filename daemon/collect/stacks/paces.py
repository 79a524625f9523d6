"""How restless the places of a program are: what share of the reads there is torn. Pure.

A read that fails says nothing of where the thread was. But reads fail where the thread enters and leaves functions all
the time, and there others come out torn, which are known for what they were. A thread within one long call into C, as
in a backward pass, is read without fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

_DEEPEST = 32
_PLACES_HELD = 4_000
# What is known of few sightings is that of the place around, which counts as so many.
_AROUND = 1
# From here on one place is as restless as another: how often reads fail and how often they are torn are not the same.
_MOST = 0.5


class _Place:
    """What stacks begin with: how often they were seen, whole or torn, and how often torn, and where they go on."""

    __slots__ = ("inner", "seen", "torn")

    def __init__(self) -> None:
        self.seen = self.torn = 0.0
        self.inner: dict[Frame, _Place] = {}


class Paces:
    """The torn share of a process's stacks, by what they begin with: ``held`` such places are known."""

    def __init__(self) -> None:
        self._outside = _Place()
        self.held = 0

    def learn(self, seen: Mapping[Stack, float], torn: Mapping[Stack, float]) -> None:
        """Learn how often stacks were seen, whole or torn, and how often they were torn."""
        if self.held > _PLACES_HELD:  # a program that makes up functions: begin anew
            self._outside, self.held = _Place(), 0
        for stack, times in seen.items():
            torn_times = torn.get(stack, 0.0)
            for place in self._along(stack, makes=True):
                place.seen += times
                place.torn += torn_times

    def of(self, stack: Stack) -> float:
        """Return how likely a read fails in a stack, beside others: the same for all where none was ever torn."""
        around = self._outside
        if not around.torn:
            return _MOST
        pace = around.torn / around.seen
        for place in self._along(stack):
            if place.seen < around.seen:  # else it is no other place
                pace = (place.torn + _AROUND * pace) / (place.seen + _AROUND)
                around = place
        return min(pace, _MOST)

    def _along(self, stack: Stack, *, makes: bool = False) -> Iterator[_Place]:
        """Yield the places on the way into a stack, as far as they are known."""
        place = self._outside
        yield place
        for frame in stack[:_DEEPEST]:
            inner = place.inner.get(frame)
            if inner is None:
                if not makes:
                    return
                inner = place.inner[frame] = _Place()
                self.held += 1
            place = inner
            yield place
