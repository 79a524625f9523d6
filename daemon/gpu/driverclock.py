"""How the stamps of a driver map to the run's clock.

A driver stamps its samples by a clock of its own: the wall clock, the time since boot, or a timer
that drifts by up to 9 s a day. A sample reaches us some time after its stamp, never before it. So
the least of *now - newest stamp* over many looks is the offset; it is too large by at most the
shortest delay. It is estimated with a look each 20 ms, until samples have come five times, or for
two seconds: at the start, and again each minute.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS

POLL_NS = 20 * MILLISECOND_NS
"""The pause between two looks while the offset is estimated."""


class DriverClock:
    """The clock of one device's samples.

    ``offset_ns`` is what to add to a stamp for the run's clock, None while it is unknown;
    ``period_ns`` is the usual distance of two stamps.
    """

    def __init__(self, now_ns: int) -> None:
        self.offset_ns: int | None = None
        self.period_ns: int | None = None
        self._distances: deque[int] = deque(maxlen=29)
        self.estimate(now_ns)

    def estimate(self, now_ns: int) -> None:
        """Begin to estimate anew; the offset that is known holds until then."""
        self.estimates_until_ns: int | None = now_ns + 2 * SECOND_NS
        self._anew_ns = now_ns + 60 * SECOND_NS
        self._least_ns: int | None = None
        self._arrivals = 0

    def look(self, now_ns: int, stamps_us: Sequence[int], *, has_waited: bool) -> None:
        """Take new stamps, in order.

        With ``has_waited`` they came since the look before, and none was there then.
        """
        if stamps_us:
            self._distances.extend(
                (after - before) * MICROSECOND_NS for before, after in itertools.pairwise(stamps_us)
            )
            if self._distances:
                self.period_ns = sorted(self._distances)[len(self._distances) // 2]
            self._take(now_ns, now_ns - stamps_us[-1] * MICROSECOND_NS, has_waited=has_waited)
        if self.estimates_until_ns is None and now_ns >= self._anew_ns:
            self.estimate(now_ns)
        elif self.estimates_until_ns is not None and (
            now_ns >= self.estimates_until_ns or self._arrivals >= 5
        ):
            self.estimates_until_ns = None
            if self._arrivals:  # a clock that falls behind has a larger offset by now
                self.offset_ns = self._least_ns

    def _take(self, now_ns: int, delay_ns: int, *, has_waited: bool) -> None:
        """Take by how much the newest stamp is behind."""
        if self.offset_ns is not None:
            later_ns, self.offset_ns = delay_ns - self.offset_ns, min(self.offset_ns, delay_ns)
            # So much is neither drift nor delay: one of the clocks was set.
            if not -SECOND_NS // 2 <= later_ns <= 5 * SECOND_NS:
                self.offset_ns = None
                self.estimate(now_ns)
        self._least_ns = delay_ns if self._least_ns is None else min(self._least_ns, delay_ns)
        self._arrivals += has_waited
        if self.offset_ns is None and self._arrivals:
            self.offset_ns = self._least_ns
