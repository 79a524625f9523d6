"""How grave a finding is, by the share of time that a fix can take away: that which is sure, the interval's low end."""

from __future__ import annotations

from profd.daemon.analyze.findings.case import Share
from profd.daemon.analyze.findings.finding import CRITICAL, INFO, WARNING

LEAST_SHARE = 0.05
WARNED_SHARE = 0.10
CRITICAL_SHARE = 1 / 3
"""What takes this much makes a training half as fast again where it is gone."""

_LEAST_SAMPLES = 100


def severity_of(share: Share, seen: int) -> str | None:
    """Return the severity of a loss of time, None where it is not worth a word.

    ``seen`` are the samples of the profile that the share is of: hardly any say nothing.
    """
    if seen < _LEAST_SAMPLES or share.low < LEAST_SHARE:
        return None
    if share.low < WARNED_SHARE:
        return INFO
    return WARNING if share.low < CRITICAL_SHARE else CRITICAL
