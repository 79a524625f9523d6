"""What a number of failures among trials says of the share of all: exact, by the binomial
distribution.
"""

from __future__ import annotations

import math

DOUBT = 0.05


def most(failures: int, trials: int) -> float:
    """Return the largest share of failures with which so few of so many come once in twenty times
    or more often.
    """
    low, high = failures / trials, 1.0
    for _ in range(60):
        share = (low + high) / 2
        low, high = (share, high) if at_most(failures, trials, share) >= DOUBT else (low, share)
    return high


def at_most(failures: int, trials: int, share: float) -> float:
    """Return the probability of so many failures or fewer, where each trial fails with this
    probability.
    """
    return sum(
        math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(failures + 1)
    )
