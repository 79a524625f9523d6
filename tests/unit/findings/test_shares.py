"""What rules are given: shares with their intervals."""

from __future__ import annotations

import pytest
from support.present import there

from profd.daemon.findings.shares import share_of_series

READINGS = [0.2, 0.3, 0.2, 0.5]


def test_a_share_is_the_mean_that_is_shown_elsewhere() -> None:
    own, shown = there(share_of_series(READINGS)), there(share_of_series(READINGS, 0.25))

    assert (own.value, shown.value) == pytest.approx((0.3, 0.25))
    assert shown.high - shown.value == pytest.approx(own.high - own.value)
    assert shown.samples == 4


def test_few_readings_tell_no_share() -> None:
    assert share_of_series(READINGS[:3], 0.2) is None
