"""How grave a finding is, by the share of time that a fix can take away: that which is sure, the interval's low end."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.findings.finding import CRITICAL, INFO, WARNING

_LEAST_SAMPLES = 100


class Scale(msgspec.Struct, frozen=True):
    """The shares of time from which on a loss is worth a word, a warning, and an alarm."""

    told: float = 0.05
    warned: float = 0.10
    critical: float = 1 / 3


LOSS = Scale()
"""Of what a training should not do at all: without a third of its time it is half as fast again."""
PRICE = Scale(told=0.10, warned=0.25, critical=0.5)
"""Of what belongs to a training, but in measure."""


def severity_of(low: float, seen: int, scale: Scale = LOSS) -> str | None:
    """Return the severity of a loss of at least the share ``low``, None where it is not worth a word.

    ``seen`` are the samples of the profile that the share is of: hardly any say nothing.
    """
    if seen < _LEAST_SAMPLES or low < scale.told:
        return None
    if low < scale.warned:
        return INFO
    return WARNING if low < scale.critical else CRITICAL
