"""How far the clocks of nodes are apart, as their counts of steps say."""

from __future__ import annotations

from itertools import starmap

from profd.daemon.analyze.clocks import guess_by_counts
from profd.daemon.store.rows import PointRow

FIRST = list(starmap(PointRow, [(1_000, 10), (2_000, 20)]))


def test_counts_of_the_same_steps_are_as_far_apart_as_the_clocks() -> None:
    guess = guess_by_counts(FIRST, list(starmap(PointRow, [(1_700, 10), (2_700, 20)])))
    assert guess is not None
    assert guess.offset_ns == 700


def test_counts_of_other_steps_say_nothing() -> None:
    assert guess_by_counts(FIRST, [PointRow(1_700, 30)]) is None


def test_a_node_of_one_count_says_nothing() -> None:
    assert guess_by_counts(FIRST[:1], FIRST) is None
