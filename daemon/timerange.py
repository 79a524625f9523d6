"""A range of time."""

from __future__ import annotations

from typing import NamedTuple

from profd.daemon.clock import SECOND_NS


class TimeRange(NamedTuple):
    """The time [from_ns, to_ns) of a run's clock; an end that is not given is open.

    No time of a run is earlier or later than the open ends.
    """

    from_ns: int = 0
    to_ns: int = 1 << 62

    @property
    def length_ns(self) -> int:
        return self.to_ns - self.from_ns

    @property
    def length_s(self) -> float:
        return self.length_ns / SECOND_NS

    @property
    def has_end(self) -> bool:
        return self.to_ns < EVER.to_ns

    def holds(self, at_ns: int) -> bool:
        """Say whether a time lies in the range."""
        return self.from_ns <= at_ns < self.to_ns

    def overlaps(self, other: TimeRange) -> bool:
        return self.from_ns < other.to_ns and other.from_ns < self.to_ns

    def within(self, other: TimeRange) -> TimeRange:
        """Return the part that lies in another range; empty if there is none."""
        from_ns = max(self.from_ns, other.from_ns)
        return TimeRange(from_ns, max(min(self.to_ns, other.to_ns), from_ns))

    def moved(self, by_ns: int) -> TimeRange:
        return TimeRange(self.from_ns + by_ns, self.to_ns + by_ns)

    def longer(self, by_ns: int) -> TimeRange:
        """Return the range with a later end, unless its end is open."""
        return TimeRange(self.from_ns, min(self.to_ns + by_ns, EVER.to_ns))

    def open_at(self, run: TimeRange) -> TimeRange:
        """Return the range, with an open end if it reaches that of a run.

        So it includes what begins before the run or ends after it.
        """
        return TimeRange(
            EVER.from_ns if self.from_ns <= run.from_ns else self.from_ns,
            EVER.to_ns if self.to_ns >= run.to_ns else self.to_ns,
        )

    def cut(self, count: int) -> list[TimeRange]:
        """Return ``count`` parts of equal length, in order, that make up the range."""
        cuts_ns = [self.from_ns + self.length_ns * number // count for number in range(count + 1)]
        return list(map(TimeRange, cuts_ns, cuts_ns[1:]))


EVER = TimeRange()
