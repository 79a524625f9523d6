"""How sure it is that a rank is late, on noise whose truth is known."""

from __future__ import annotations

import random

import pytest
from support.present import there

from profd.daemon.analyze.ranks import PARTS, OwnWork, Place, find_late, lateness, median_of_others

LOAD = Place("data load in process", "Photos.__getitem__", "/srv/data.py")
READ = Place("other", "read_block", "/srv/disk.py")
RUNS = 1000


def effort(rank: int, *own: float | None, loads: float = 0.0, reads: float = 0.0) -> OwnWork:
    """Return a rank whose own work in the parts of a range is ``own``."""
    return OwnWork(
        rank, frozenset({rank}), 500, own, (None,) * len(own), {LOAD: loads, READ: reads}, {}
    )


def noisy(chance: random.Random, *means: float, spread: float) -> list[OwnWork]:
    """Return ranks whose own work varies around their means."""
    return [
        effort(rank, *(chance.gauss(mean, spread) for _ in range(PARTS)))
        for rank, mean in enumerate(means)
    ]


def test_of_equal_ranks_hardly_one_in_forty_runs_seems_surely_above_the_others() -> None:
    chance = random.Random(1)
    seeming = 0
    for _ in range(RUNS):
        efforts = noisy(chance, 0.5, 0.5, 0.5, 0.5, spread=0.2)
        judged = [lateness(efforts, rank) for rank in range(4)]
        seeming += any(one is not None and one.low > 0 for one in judged)

    # Half of five percent lie above; the median of three is a little off normal.
    assert 0.01 * RUNS < seeming < 0.035 * RUNS


def test_intervals_hold_the_truth_at_least_as_often_as_they_say() -> None:
    chance = random.Random(2)
    held = 0
    for _ in range(RUNS):
        one = lateness(noisy(chance, 0.4, 0.4, 0.6, spread=0.2), 2)
        held += one is not None and one.low <= 0.2 <= one.high

    # 95 times in 100 for three ranks together: 98.3 for each of them.
    assert 0.975 * RUNS < held < 0.993 * RUNS


def test_what_is_not_sure_or_was_not_seen_makes_no_one_late() -> None:
    now_and_then = effort(0, *(1.0 if part % 6 == 0 else 0.2 for part in range(PARTS)))
    always = effort(0, *(0.35 for _ in range(PARTS)))
    others = [effort(rank, *(0.2 for _ in range(PARTS))) for rank in (1, 2)]

    # Both are above the others by more than a tenth.
    assert find_late([now_and_then, *others], by_cpu=False) == ()
    assert [one.rank for one in find_late([always, *others], by_cpu=False)] == [0]
    seen = [0.5, None] * (PARTS // 2)
    assert there(lateness([effort(0, *seen), *others], 0)).surplus == pytest.approx(0.3)
    assert (
        lateness([effort(0, 0.5, 0.5, 0.5), *(effort(rank, 0.2, 0.2, 0.2) for rank in (1, 2))], 0)
        is None
    )


def test_a_rank_is_measured_by_the_median_of_the_others_and_placed_by_its_largest_surplus() -> None:
    efforts = [
        effort(rank, share, share, share, share) for rank, share in enumerate((0.9, 0.2, 0.3, 0.8))
    ]

    assert median_of_others(efforts, 0) == pytest.approx(0.3)
    assert median_of_others(efforts, 2) == pytest.approx(0.8)
    late = effort(0, *[0.8] * PARTS, loads=0.5, reads=0.3)
    others = [effort(rank, *[0.6] * PARTS, loads=0.5, reads=0.1) for rank in (1, 2)]
    one = there(lateness([late, *others], 0))
    assert one.place == READ
    assert one.place_surplus == pytest.approx(0.2)
