"""The cost of what is switched on and off: found under noise that drifts and lingers, and not where
there is none.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections import Counter

import numpy as np
import pytest
from cost import switched, throughput
from cost.switched import Block, Taken
from cost.throughput import Work

from profd.daemon import processes

SECONDS, STEP_S = 600.0, 0.003


def measured(cost: float, seed: int) -> list[Taken]:
    """Return blocks of a loop that is slower by a share while it is recorded.

    Its speed drifts, and noise lingers.
    """
    chance, noise, at_s, taken = np.random.default_rng(seed), 0.0, 0.0, []
    for length_s, is_on, is_sham in switched.plan(SECONDS, 0.5, 1.5, seed):
        noise = 0.5 * noise + chance.normal(0, 0.01)
        step_s = STEP_S * (1 + 0.05 * math.sin(at_s / 200) + noise) * (1 + cost * is_on)
        taken.append(Taken(is_on, is_sham, step_s, 2 * step_s))
        at_s += length_s
    return taken


def test_switches_are_balanced_in_each_four_blocks_and_know_nothing_of_each_other() -> None:
    blocks = switched.plan(60, 0.5, 2, 3)
    assert sum(block.length_s for block in blocks) >= 60
    assert all(0.5 <= block.length_s <= 2 for block in blocks)
    fours = [
        [block[1:] for block in blocks[place : place + 4]] for place in range(0, len(blocks), 4)
    ]
    assert all(Counter(four) == Counter(fours[0]) and len(set(four)) == 4 for four in fours)
    assert len({tuple(four) for four in fours}) > 3
    assert blocks == switched.plan(60, 0.5, 2, 3) != switched.plan(60, 0.5, 2, 4)


def test_intervals_hold_the_cost_and_nothing_in_nineteen_of_twenty_measurements() -> None:
    found = [
        switched.estimate(measured(0.01, seed), "wall_s") for seed in range(100)
    ]  # on for half of the time
    assert 90 <= sum(abs(real.percent - 0.5) <= real.half for real, _ in found) <= 99
    assert 90 <= sum(sham.holds_zero for _, sham in found) <= 99
    real, _ = found[0]
    assert real.detectable == pytest.approx(real.half * 2.8 / 1.96, rel=0.02)
    assert switched.estimate(measured(0.01, 0), "cpu_s")[0] == pytest.approx(real)


def test_errors_allow_for_fours_that_are_alike() -> None:
    blocks, lasting = measured(0.0, 1), []
    for place, block in enumerate(blocks):
        lasting.append(
            block._replace(wall_s=STEP_S * (1 + 0.01 * block.is_on * (-1) ** (place // 40)))
        )
    real, _ = switched.estimate(lasting, "wall_s")
    fours = len(blocks) // 4
    assert (
        real.half > 1.5 * 1.96 * 0.5 / fours**0.5
    )  # what it would be of fours that know nothing of each other


def test_a_four_without_a_whole_step_in_one_of_its_blocks_counts_for_nothing() -> None:
    blocks = [
        Taken(*block[1:], 0.3 + 0.003 * block.is_on, 0.3) for block in switched.plan(60, 1, 1, 1)
    ]
    spoiled = [Taken(True, True, None, None), *blocks[1:4], *blocks[4:]]
    assert switched.estimate(spoiled, "wall_s") == switched.estimate(blocks[4:], "wall_s")


def test_steps_count_where_they_lie_whole_in_a_block() -> None:
    ends_s = np.array([1.0, 2.0, 3.5, 4.5, 5.0])
    taken = switched.take_blocks(
        [(1.5, 4.5, True, False), (4.6, 4.9, False, True)], ends_s, 2 * ends_s
    )
    assert taken == [Taken(True, False, 1.25, 2.5), Taken(False, True, None, None)]


def test_rows_say_what_does_not_hold() -> None:
    work = Work(0.97, 99.6)
    lines = throughput.rows("small steps", measured(0.0, 5)[:40], measured(0.02, 6), work)
    assert [line.split(" | ")[0] for line in lines] == ["| small steps, wall", "| small steps, CPU"]
    assert all(
        "the upper end is above 0.4 %" in line and line.endswith("| 97% | 100 Hz |")
        for line in lines
    )
    quiet = [Taken(*block[1:], 0.3, 0.3) for block in switched.plan(60, 1, 1, 1)]
    assert " | holds | " in throughput.rows("small steps", quiet[:20], quiet, work)[0]


def test_all_of_profd_is_stopped_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, signal.Signals]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(processes, "children", {7: [8, 9]}.__getitem__)
    switch = throughput.Switch(7, 6)
    switch.turn(True)
    assert sent == []
    for is_on in (False, False, True):
        switch.turn(is_on)
    stopped, went_on = sent[:4], sent[4:]
    assert stopped == [
        (pid, signal.SIGSTOP) for pid in (7, 6, 8, 9)
    ]  # the session first: it starts the others
    assert went_on == [(pid, signal.SIGCONT) for pid, _ in stopped]


def test_both_switches_follow_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[bool] = []
    monkeypatch.setattr(time, "sleep", lambda _: None)
    spans = throughput.follow([Block(1.0, False, True), Block(1.0, True, True)], turned.append)
    assert turned == [False, True, True]
    assert [span[2:] for span in spans] == [(False, True), (True, True)]
    assert spans[0][0] <= spans[0][1] <= spans[1][0]
