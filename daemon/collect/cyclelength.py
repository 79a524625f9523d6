"""How many steps a cycle of a loop (an epoch) has, by what is seen of its counter. Pure.

At least as many as the counter has reached, at most as many as the loop's rate allows from the sighting before its end
to the one after it. The closer these are, the closer the bounds.
"""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.gait import Gait, Position

RATE_MARGIN = 0.1
HIGHEST_START = 1  # every cycle begins at 0 or 1, though it may never have been seen there


class CycleLength:
    """The bounds of a cycle's length, closer with every cycle that is seen."""

    def __init__(self) -> None:
        self._lowest: int | None = None
        self._highest = 0
        self._at_most: tuple[float, float] | None = None

    @property
    def has_ended(self) -> bool:
        """Say whether an end of a cycle was ever seen."""
        return self._at_most is not None

    @property
    def least(self) -> int:
        """How many steps a cycle has at least."""
        return 0 if self._lowest is None else self._highest - min(self._lowest, HIGHEST_START) + 1

    def see(self, value: int) -> None:
        """Learn that the counter has reached a value."""
        self._lowest = value if self._lowest is None else min(self._lowest, value)
        self._highest = max(self._highest, value)

    def see_end(self, before: Position, after: Position, cycles: int, gait: Gait) -> None:
        """Learn from the positions around an end; a pause there makes the bound too high."""
        made = gait.expected(before, after)
        margin = 1 + RATE_MARGIN * made + gait.rate_per_s * (after.error_ns + before.error_ns) / SECOND_NS
        found = ((before.value - after.value + made) / cycles, margin / cycles)
        if self._at_most is None or sum(found) < sum(self._at_most):
            self._at_most = found

    def estimate(self) -> tuple[int, float]:
        """Return how many steps a cycle has, and by how many that may be wrong."""
        if self._at_most is None:
            return self.least, 0.0
        wanted, margin = self._at_most
        steps = max(round(wanted), self.least)
        return steps, max(steps - self.least, wanted + margin - steps, 1.0)

    def is_within(self, share: float) -> bool:
        """Say whether the length is known as exactly as this share of it, or to a step."""
        steps, error_steps = self.estimate()
        return error_steps <= max(1.0, share * steps)

    def halfway(self) -> float:
        """Return the value of the counter by which a sighting would tell most: half-way between the bounds."""
        return (self._highest + 1 + min(self._lowest or 0, HIGHEST_START) + self.estimate()[0]) / 2

    def steps_over_end(self, before: Position, after: Position) -> int:
        """Return how many steps at least lie between two positions with an end between them."""
        return self._highest + 1 - before.value + after.value

    def most_ends(self, before: Position, after: Position, gait: Gait) -> int:
        """Return how often a cycle can have ended between two positions, generously."""
        return 1 + int(2 * gait.expected(before, after) / max(self.least, 1))
