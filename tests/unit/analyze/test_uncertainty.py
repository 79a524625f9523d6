"""Errors of shares: known answers, and that intervals hold the truth as often as they say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from profd.daemon.analyze.confidence import CONFIDENCE_95, is_hint
from profd.daemon.analyze.uncertainty import Reads, ShareVariance, TransitionsSeen, together

A, B, C = 1, 2, 3
UNSELECTED = 9


def doubt_of(squares: dict[tuple[tuple[int, int], ...], float], open_ns2: float = 1.0) -> ShareVariance[str]:
    states = {A: frozenset("ax"), B: frozenset("bx"), C: frozenset("c")}
    doubt: ShareVariance[str] = ShareVariance(lambda stack: states.get(stack, frozenset()))
    doubt.add(TransitionsSeen(squares, open_ns2))
    return doubt


def test_the_variance_is_the_changes_of_a_state_and_one_more() -> None:
    doubt = doubt_of({((A, B),): 8.0, ((B, C),): 3.0, ((C, A),): 4.0})

    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(8 + 4 + 1) / 10)
    assert doubt.standard_error("x", 0.5, 10) == pytest.approx(math.sqrt(3 + 4 + 1) / 10)
    doubt = doubt_of({((UNSELECTED, UNSELECTED + 1),): 5.0, ((A, UNSELECTED), (UNSELECTED, A)): 5.0})

    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(1) / 10)
    assert doubt_of({}, open_ns2=0.0).standard_error("a", 0.5, 10) == 1.0
    assert doubt_of({((A, B),): 8.0}).standard_error("a", 0.5, 0) == 1.0
    assert doubt_of({((A, B),): 800.0}).standard_error("a", 0.5, 1) == 1.0


def test_threads_that_change_the_selection_at_once_err_together() -> None:
    same, opposite = ((A, B), (A, B)), ((A, B), (B, A))

    assert doubt_of({same: 1.0}).standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(4 + 1) / 10)
    assert doubt_of({opposite: 1.0}).standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(1) / 10)
    doubt = doubt_of({((A, UNSELECTED), (B, UNSELECTED)): 1.0})

    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt((1 - 0.5 * 2) ** 2 + 1) / 10)
    assert doubt.standard_error("x", 1.0, 10) == pytest.approx(math.sqrt(1) / 10)


def test_where_the_whole_is_uncertain_too_its_error_is_taken_off() -> None:
    # All that is selected begins and ends with A: its share of it is one for sure.
    doubt = doubt_of({((UNSELECTED, A),): 5.0, ((A, UNSELECTED),): 5.0})

    assert doubt.standard_error("a", 1.0, 10) == pytest.approx(math.sqrt(1) / 10)
    assert doubt.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(10 * 0.25 + 1) / 10)


def test_what_failed_reads_would_have_shown_is_a_guess_that_no_time_makes_better() -> None:
    def error(failed: float, whole_ns: float, share: float = 0.5) -> float:
        doubt = doubt_of({})
        doubt.add(TransitionsSeen({((A, B),): whole_ns}, 1.0, Reads(failed, 100.0)))
        return doubt.standard_error("a", share, whole_ns)

    assert error(0, 1e12) < 1e-5
    assert 0.01 < error(25, 1e12) < 0.04
    assert error(50, 1e12) == pytest.approx(4 * error(25, 1e12), rel=0.001)
    assert error(9, 100) == pytest.approx(error(0, 100), rel=0.01), "few failed reads say hardly less"
    assert error(50, 1e12, share=1.0) < 1e-5, "a share of everything is everything"


def test_processes_add_up_by_their_weights_and_failed_reads_by_their_time() -> None:
    changes = {1: TransitionsSeen(reads=Reads(10, 100)), 2: TransitionsSeen(reads=Reads(0, 100))}
    assert together(changes, {1: 3.0, 2: 1.0}).reads.failed_share == pytest.approx(30 / 400)
    assert Reads().failed_share == 0
    assert Reads(9, 3).failed_share == 1
    one = TransitionsSeen({((A, B),): 8.0}, 1.0)
    weighted = together({1: one, 2: one}, {1: 1.0, 2: 2.0})
    both = doubt_of(dict(weighted.squares), weighted.open_ns2)

    assert both.standard_error("a", 0.5, 10) == pytest.approx(math.sqrt(8 + 32 + 1 + 4) / 10)


def test_a_share_within_its_interval_is_a_hint() -> None:
    assert is_hint(0.01, 0.01)
    assert not is_hint(0.5, 0.01)


Path = Callable[[float], int]


def slow(at_s: float) -> int:
    return A if at_s % 0.7 < 0.4 else B


def fast(_: float) -> int:
    return A if random.random() < 0.3 else C


@pytest.mark.parametrize(("path", "truth"), [(slow, 4 / 7), (fast, 0.3)])
def test_intervals_hold_the_truth_as_often_as_they_say(path: Path, truth: float) -> None:
    random.seed(5)
    held = sum(holds(path, truth) for _ in range(400))

    # Three standard deviations of 400 cases of 95 %.
    assert 0.917 <= held / 400 <= 0.983


def holds(path: Path, truth: float) -> bool:
    """Sample ten rounds of 0.7 s at 100 Hz, and say whether the interval holds the truth."""
    times = [0.0]
    while times[-1] < 7.0:
        times.append(times[-1] + random.expovariate(100))
    times[-1] = 7.0
    stacks = [path(at_s) for at_s in times]
    spent_s = sum(end - start for start, end, stack in zip(times, times[1:], stacks, strict=False) if stack == A)
    changes = sum(stacks[i] != stacks[i - 1] for i in range(1, len(stacks) - 1))
    square = (7.0 / (len(times) - 1)) ** 2
    error = doubt_of({((A, C),): changes * square}, square).standard_error("a", spent_s / 7, 7.0)
    return abs(spent_s / 7 - truth) <= CONFIDENCE_95 * error
