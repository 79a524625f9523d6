"""What a standard error means to a person: the 95 % interval around a number."""

from __future__ import annotations

CONFIDENCE_95 = 1.96


def margin(error: float) -> float:
    """Return half the width of the 95 % interval of a share with this standard error."""
    return CONFIDENCE_95 * error


def is_hint(share: float, error: float) -> bool:
    """Say whether the 95 % interval of a share is wider than the share itself: then it says next to nothing."""
    return 2 * margin(error) > share
