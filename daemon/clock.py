"""The one clock of a run: wall-clock nanoseconds that never jump.

The wall clock is read once, when the clock is created; from then on the monotonic clock is added to
it, so that a jump of the wall clock moves no sample. All code that needs the time takes a
``Clock``; tests derive theirs from it.
"""

from __future__ import annotations

import time

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 3_600 * SECOND_NS
MILLISECOND_NS = 1_000_000
MICROSECOND_NS = 1_000


def rest_s(took_s: float, share: float) -> float:
    """Return for how long to rest after work of ``took_s``, so that work takes ``share`` of a core.

    If both are times on the clock, it is the share of the time.
    """
    return took_s * (1 / share - 1)


class Clock:
    """The time of a run: monotonic, anchored to the wall clock at creation."""

    def __init__(self) -> None:
        # The wall clock is read between two readings of the monotonic one, so that being
        # descheduled here cannot shift a run.
        before = time.monotonic_ns()
        self.anchor_wall_ns = time.time_ns()
        self.anchor_monotonic_ns = (before + time.monotonic_ns()) // 2
        self._slept_before_ns = _slept_ns()

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch, never going back."""
        return self.anchor_wall_ns + time.monotonic_ns() - self.anchor_monotonic_ns

    def wall_jump_ns(self) -> int:
        """Return how many nanoseconds the wall clock is ahead of this clock.

        If it is ahead, it was set since this clock was created.
        """
        return time.time_ns() - self.now_ns()

    def suspended_ns(self) -> int:
        """Return the nanoseconds for which the machine has slept since this clock was created.

        This clock stood still meanwhile.
        """
        return _slept_ns() - self._slept_before_ns


def until_tick_s(interval_s: float) -> float:
    """Return the seconds until the next multiple of an interval.

    Tasks that all wait for such multiples wake the process only once.
    """
    return interval_s - time.monotonic() % interval_s


def _slept_ns() -> int:
    """Return how long the machine has slept since it was booted, to within a few microseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
