"""The bounds of what `profd diff` says stay within what there can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon.compare.blocks import Mean
from profd.daemon.compare.diff import Judge
from profd.daemon.compare.readings import Pair, judged

PART = st.floats(0, 1)
ERROR = st.floats(0, 2)


@given(base=PART, new=PART, errors=st.tuples(ERROR, ERROR), slower=st.floats(0, 1))
def test_no_part_of_a_step_loses_more_than_the_step(
    base: float, new: float, errors: tuple[float, float], slower: float
) -> None:
    judge = Judge(20, 3, whole=1.0, least=0.02, slower=slower)
    change = judge.change(("line", "x", "a.py", 1), Mean(base, errors[0]), Mean(new, errors[1]))
    assert -1.0 <= change.low <= change.difference <= change.high


@pytest.mark.parametrize(("unit", "within"), [("share", True), ("bytes", False)])
def test_a_share_loses_and_gains_no_more_than_all(unit: str, within: bool) -> None:
    pair = Pair("gpu", "GPU 0", "busy", unit, Mean(0.4, 0.5), Mean(0.6, 0.5), 2, 0.02)
    (reading,) = judged([pair], 0.05)
    assert reading.low is not None
    assert reading.high is not None
    assert (reading.low >= -1 and reading.high <= 1) is within
