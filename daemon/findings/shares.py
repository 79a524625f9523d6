"""Shares of time with their intervals, of sampled stacks and of series that were read."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from profd.daemon.analyze.confidence import margin, standard_error
from profd.daemon.analyze.profile import Profile
from profd.daemon.analyze.uncertainty import State
from profd.daemon.findings.finding import Measure

_MOST = 0.99
_FEWEST_READINGS = 4


class Share(msgspec.Struct, frozen=True):
    """A share of time with its 95 % interval, and the samples that it rests on.

    ``samples`` is None if the share was not sampled.
    """

    value: float
    low: float
    high: float
    samples: int | None = None

    @property
    def gain(self) -> float:
        """By how many times all goes faster, at most, without what has this share."""
        return 1 / (1 - min(self.high, _MOST))

    @property
    def least_gain(self) -> float:
        """By how many times all goes faster without what surely has this share."""
        return 1 / (1 - min(self.low, _MOST))

    def measure(self, name: str) -> Measure:
        if self.samples is None:
            return Measure(name, self.value)
        return Measure(name, self.value, "share", self.low, self.high, self.samples)

    def at_most(self, other: Share) -> Share:
        """Return the same samples' share, no number of it above that of another."""
        return Share(
            min(self.value, other.value),
            min(self.low, other.low),
            min(self.high, other.high),
            self.samples,
        )

    def plus(self, part: float) -> Share:
        """Return the share with a part of the time that no sample shows by itself."""
        value, low, high = (max(one + part, 0.0) for one in (self.value, self.low, self.high))
        return Share(value, low, high, self.samples)

    def times(self, part: float) -> Share:
        return Share(self.value * part, self.low * part, self.high * part, self.samples)


NONE = Share(0.0, 0.0, 0.0, 0)


def share_around(value: float, error: float, samples: int) -> Share:
    around = margin(error)
    return Share(value, max(value - around, 0.0), min(value + around, 1.0), samples)


def shares_by(profile: Profile, state_of: Callable[[int], State]) -> dict[State, Share]:
    """Return the share of each state that the stacks of a profile are in."""
    state_of = functools.cache(state_of)
    samples: Counter[State] = Counter()
    for stack, count in profile.samples.items():
        samples[state_of(stack)] += count
    whole_ns = profile.total_ns
    spent_ns = profile.time_by(state_of) if whole_ns else {}
    shares = {state: time_ns / whole_ns for state, time_ns in spent_ns.items()}
    errors = profile.errors(shares, lambda stack: frozenset({state_of(stack)}))
    return {
        state: share_around(share, errors[state], samples[state]) for state, share in shares.items()
    }


def share_of_series(values: Sequence[float], mean: float | None = None) -> Share | None:
    """Return the mean of a share with its interval by readings; None if they are too few.

    ``mean`` is that of the series by its step function. Without it the mean of the readings counts,
    as for several series together.
    """
    if len(values) < _FEWEST_READINGS:
        return None
    value = statistics.fmean(values) if mean is None else mean
    return share_around(value, standard_error(values), len(values))
