"""Utilization of a GPU by the samples that the driver keeps.

The driver samples several times a second by itself; its buffer, read once a second, has all
samples. A sample is the share of the time since the one before in which any kernel ran. If the
buffer is dry, as with some drivers while the GPU is idle, or cannot be read, the driver's current
value takes its place, once a second.
"""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.gpu.answers import BusySample, NoDriverAnswer, Why
from profd.daemon.gpu.driverclock import DriverClock
from profd.daemon.gpu.questions import Questions

FINEST_NS = 50 * MILLISECOND_NS
"""Samples closer to each other than this are merged, so that no driver can flood a run file."""
_SILENT_PERIODS = 2
_LONG_NS = 10 * SECOND_NS
_MOST_KEPT = 512
"""More samples than the buffer of any driver has, which may give the same ones again."""


class UtilizationSamples:
    """The samples of one GPU, each read once and at its time on the run's clock."""

    def __init__(self, questions: Questions, clock: Clock, since_ns: int) -> None:
        """Begin at ``since_ns``: earlier samples are left in the driver's buffer."""
        self._questions, self._source, self._clock = questions, questions.source, clock
        self.driver_clock = DriverClock(clock.now_ns())
        self.newest_ns = clock.now_ns()
        self._last_ns = since_ns
        self._stamp_us = 0
        self._seen: dict[int, None] = {}  # in order of arrival
        self._held: list[BusySample] = []
        self._heard_ns = self.newest_ns
        self._has_looked = self._is_coarse = False

    @property
    def polls(self) -> bool:
        """Whether to look each 20 ms now, to estimate the offset of the driver's clock."""
        return self.driver_clock.estimates_until_ns is not None and not self._is_lacking()

    def poll(self) -> None:
        now_ns = self._clock.now_ns()
        new = self._unseen(self._stamp_us)
        if not new and self._is_silent(now_ns):  # all look old if the driver's clock was set back
            new = self._unseen(0)
        self._seen.update((sample.stamp_us, None) for sample in new)
        for oldest in list(self._seen)[:-_MOST_KEPT] if len(self._seen) > 2 * _MOST_KEPT else ():
            del self._seen[oldest]
        self.driver_clock.look(
            now_ns, [sample.stamp_us for sample in new], has_waited=self._has_looked
        )
        # The delay of what comes after a long pause, or first of all, says little.
        self._has_looked = self.polls
        if new:
            self._stamp_us = new[-1].stamp_us
            self._held += new
            self._heard_ns = now_ns

    def read(self) -> list[tuple[int, float]]:
        """Return the samples since the last reading, in order of time.

        Each is a time in ns, and the share of the time since the sample before in which the GPU was
        busy.
        """
        self.poll()
        now_ns, clock = self._clock.now_ns(), self.driver_clock
        if clock.offset_ns is None and not self.polls:
            # The first ones since there was nothing to estimate by.
            if self._held and self._heard_ns == now_ns:
                clock.estimate(now_ns)
            else:  # nobody knows when these were
                self._held = []
        found = self._release(now_ns)
        self._is_coarse = False
        if not found and not self.polls and self._is_silent(now_ns):
            found = self._current(now_ns)
        if found:
            self.newest_ns = self._last_ns = found[-1][0]
        return found

    def why_missing(self) -> str | None:
        """Return why there is no utilization at all; None if there was one lately."""
        if self._clock.now_ns() - self.newest_ns < _LONG_NS + self._patience_ns():
            return None
        errors = (
            self._questions.why_not(one) for one in (self._source.samples, self._source.utilization)
        )
        return (
            "; ".join(str(error) for error in errors if error is not None)
            or "the driver has no samples"
        )

    def why_coarse(self) -> str | None:
        """Return the error by which the driver's current value stands for its samples.

        None if none does.
        """
        return str(self._error()) if self._is_coarse else None

    def _current(self, now_ns: int) -> list[tuple[int, float]]:
        """Return the driver's current value in place of its samples.

        If it has no samples because the GPU idles, all the time since the last one was idle.
        """
        share, error = self._questions.ask(self._source.utilization), self._error()
        if share is None:
            return []
        is_dry = error is None or error.why is Why.EMPTY
        self._is_coarse = not is_dry
        if not is_dry or share or self.driver_clock.period_ns is None:
            return [(now_ns, share)]
        distance_ns = _SILENT_PERIODS * max(self.driver_clock.period_ns, FINEST_NS)
        since_ns = max(self._last_ns, now_ns - _LONG_NS)  # nobody looked before that
        return [(at_ns, 0.0) for at_ns in range(now_ns, since_ns, -distance_ns)][::-1]

    def _release(self, now_ns: int) -> list[tuple[int, float]]:
        """Return the samples that were held back, at their times, once the offset is known."""
        offset_ns, period_ns = self.driver_clock.offset_ns, self.driver_clock.period_ns or SECOND_NS
        if offset_ns is None:
            return []
        held = [
            (sample.stamp_us * MICROSECOND_NS + offset_ns, sample.share) for sample in self._held
        ]
        self._held = []
        new = [(at_ns, share) for at_ns, share in held if self._last_ns < at_ns <= now_ns]
        before_ns = max(self._last_ns, new[0][0] - period_ns) if new else 0
        return list(_put_together(before_ns, new))

    def _unseen(self, after_us: int) -> list[BusySample]:
        answer = self._questions.ask(self._source.samples, then=(after_us,)) or []
        return sorted(sample for sample in answer if sample.stamp_us not in self._seen)

    def _is_silent(self, now_ns: int) -> bool:
        return now_ns - self._heard_ns >= self._patience_ns()

    def _patience_ns(self) -> int:
        if self._is_lacking():
            return 0
        return _SILENT_PERIODS * (self.driver_clock.period_ns or SECOND_NS // 2)

    def _is_lacking(self) -> bool:
        error = self._error()
        return error is not None and error.why in (Why.LACKING, Why.REFUSED)

    def _error(self) -> NoDriverAnswer | None:
        return self._questions.why_not(self._source.samples)


def _put_together(before_ns: int, samples: list[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield samples at least ``FINEST_NS`` apart; closer ones become their weighted mean."""
    busy, start_ns, since_ns = 0.0, before_ns, before_ns
    for position, (at_ns, share) in enumerate(samples):
        busy += share * (at_ns - since_ns)
        since_ns = at_ns
        if at_ns - start_ns >= FINEST_NS or position == len(samples) - 1:
            yield at_ns, busy / (at_ns - start_ns)
            busy, start_ns = 0.0, at_ns
