"""The cost of what is switched on and off: found under noise that drifts and lingers, and not where there is none."""

from __future__ import annotations

import math
import time
from collections import Counter

import numpy as np
import pytest
import switched
import throughput
from switched import Block, Taken

SECONDS, STEP_S = 600.0, 0.003


def measured(cost: float, seed: int) -> list[Taken]:
    """Return blocks of a loop that is slower by a share while it is recorded; its speed drifts, and noise lingers."""
    chance, noise, at_s, taken = np.random.default_rng(seed), 0.0, 0.0, []
    for length_s, is_on, is_sham in switched.plan(SECONDS, 0.5, 1.5, seed):
        noise = 0.5 * noise + chance.normal(0, 0.01)
        step_s = STEP_S * (1 + 0.05 * math.sin(at_s / 200) + noise + cost * is_on)
        steps = int(length_s / step_s)
        taken.append(Taken(at_s, is_on, is_sham, steps, steps * step_s, 2 * steps * step_s, steps * step_s))
        at_s += length_s
    return taken


def test_switches_are_balanced_in_each_four_blocks_and_know_nothing_of_each_other() -> None:
    blocks = switched.plan(60, 0.5, 2, 3)
    assert sum(block.length_s for block in blocks) >= 60
    assert all(0.5 <= block.length_s <= 2 for block in blocks)
    fours = [[block[1:] for block in blocks[place : place + 4]] for place in range(0, len(blocks), 4)]
    assert all(Counter(four) == Counter(fours[0]) and len(set(four)) == 4 for four in fours)
    assert len({tuple(four) for four in fours}) > 3
    assert blocks == switched.plan(60, 0.5, 2, 3) != switched.plan(60, 0.5, 2, 4)


def test_intervals_hold_the_cost_and_nothing_in_nineteen_of_twenty_measurements() -> None:
    found = [switched.estimate(measured(0.01, seed), "wall_s") for seed in range(100)]
    assert 90 <= sum(abs(real.percent - 1.0) <= real.half for real, _ in found) <= 99
    assert 90 <= sum(sham.holds_zero for _, sham in found) <= 99
    real, _ = found[0]
    assert real.detectable == pytest.approx(real.half * 2.8 / 1.96, rel=0.02)
    assert switched.estimate(measured(0.01, 0), "cpu_s")[0] == pytest.approx(real)


def test_errors_allow_for_neighbors_that_are_alike() -> None:
    chance = np.random.default_rng(1)
    noise = np.zeros(400)
    for place in range(1, 400):
        noise[place] = 0.8 * noise[place - 1] + chance.normal()
    columns = np.stack([np.ones(400), np.arange(400) // 40 % 2 * 1.0], axis=1)  # long blocks: the noise lingers in them
    found, errors = switched.least_squares(columns, noise)
    residuals = noise - columns @ found
    plain = np.sqrt(np.diag(np.linalg.inv(columns.T @ columns)) * (residuals @ residuals) / 398)
    assert (errors > 1.5 * plain).all()
    assert found == pytest.approx(np.linalg.lstsq(columns, noise)[0])


def test_steps_count_where_they_lie_whole_in_a_block() -> None:
    ends_s = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    taken = switched.take_blocks([(1.5, 4.5, True, False), (4.6, 4.9, False, True)], ends_s, 2 * ends_s)
    assert taken == [Taken(0.0, True, False, 2, 2.0, 4.0, 2.0)]
    ends_s = np.cumsum([1.0] * 150 + [50.0] + [1.0] * 849)
    (block,) = switched.take_blocks([(148.5, 210.0, True, False)], ends_s, ends_s)
    assert (block.steps, block.wall_s, block.capped_s) == (12, 61.0, 12.0)


def test_rows_say_what_does_not_hold() -> None:
    lines = throughput.rows("small steps", measured(0.0, 5)[:40], measured(0.02, 6), 0.012)
    assert [line.split(" | ")[0] for line in lines] == [
        "| small steps, wall",
        "| small steps, wall, capped",
        "| small steps, CPU",
    ]
    assert all("the upper end is above 0.4 %" in line and line.endswith("| 1.2% |") for line in lines)
    quiet = [
        Taken(float(place), *block[1:], 100, 0.3, 0.3, 0.3) for place, block in enumerate(switched.plan(60, 1, 1, 1))
    ]
    assert " | holds | " in throughput.rows("small steps", quiet[:20], quiet, 0.0)[0]


def test_both_switches_follow_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[bool] = []
    monkeypatch.setattr(time, "sleep", lambda _: None)
    spans = throughput.follow([Block(1.0, False, True), Block(1.0, True, True)], turned.append)
    assert turned == [False, True, True]
    assert [span[2:] for span in spans] == [(False, True), (True, True)]
    assert spans[0][0] <= spans[0][1] <= spans[1][0]
