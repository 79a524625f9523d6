"""For how long a loop paused, as samples show."""

from __future__ import annotations

import pytest
from support.loopmodels import PAUSING, STEPPING, TRAIN

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import Place
from profd.daemon.collect.steps.pauses import Pause, Pauses
from profd.daemon.collect.steps.sightings import Variable
from profd.daemon.store.records import Frame, Interval

COUNTER = Variable(TRAIN, "i")
RATE_HZ = 100
UNKNOWN_LINE = (Frame("train", "/home/ada/train.py", 0),)
ELSEWHERE = (Frame("evaluate", "/home/ada/train.py", STEPPING[0].line),)
STACKS = (STEPPING, PAUSING, UNKNOWN_LINE, ELSEWHERE)


def steps_by(frame: Frame, counter: str) -> bool:
    return counter == "i" and frame.line == STEPPING[0].line


def pauses_of(*recordings: list[tuple[float, float, int]], counter: Variable | None = COUNTER) -> Pauses:
    """Return the pauses by recordings of (from, to, index of the stack), in seconds."""
    pauses = Pauses(counter)
    for recording in recordings:
        intervals = [
            Interval(int(from_s * SECOND_NS), int((to_s - from_s) * SECOND_NS), stack, 1)
            for from_s, to_s, stack in recording
        ]
        pauses.take(intervals, STACKS, RATE_HZ, steps_by)
    return pauses


def between(pauses: Pauses, from_s: float, to_s: float) -> Pause | None:
    return pauses.between(int(from_s * SECOND_NS), int(to_s * SECOND_NS))


def seconds(pauses: Pauses, from_s: float, to_s: float) -> float:
    pause = between(pauses, from_s, to_s)
    assert pause is not None
    return pause.seconds


def test_a_loop_pauses_while_the_main_thread_is_not_in_its_lines() -> None:
    pauses = pauses_of([(0, 4, 0), (4, 4.5, 1), (4.5, 9, 0)])
    assert seconds(pauses, 0, 9) == pytest.approx(0.5)
    assert seconds(pauses, 0, 4.2) == pytest.approx(0.2)
    assert seconds(pauses, 5, 9) == 0
    assert between(pauses, 8, 9.5) is None


def test_another_function_that_counts_by_the_same_name_is_not_the_loop() -> None:
    assert seconds(pauses_of([(0, 4, 0), (4, 4.5, 3), (4.5, 9, 0)]), 0, 9) == pytest.approx(0.5)


def test_a_pause_lasts_until_the_loop_is_seen_again() -> None:
    pauses = pauses_of(
        [(0, 4, 0), (4, 4.3, 1), (4.4, 4.6, 3), (4.6, 5, 0)],
        [(5, 6, 0), (6, 6.5, 1)],
        [(6.7, 7, 1), (7, 9, 0)],
    )
    assert seconds(pauses, 0, 5.5) == pytest.approx(0.6)
    assert seconds(pauses, 5.5, 9) == pytest.approx(1.0)
    pause = between(pauses, 5.5, 9)
    assert pause is not None
    # One pause begins and ends between two samples, however many it was seen in.
    assert pause.error_s == pytest.approx(2 * 2**0.5 / RATE_HZ)


def test_nobody_knows_what_happens_where_no_sample_was_taken_for_long() -> None:
    assert seconds(pauses_of([(0, 4, 0), (4, 5, 1)], [(8, 9, 1), (9, 10, 0)]), 0, 10) == pytest.approx(2)


def test_a_pause_of_a_sample_or_two_is_not_told() -> None:
    assert seconds(pauses_of([(0, 4, 0), (4, 4.04, 1), (4.04, 9, 0)]), 0, 9) == 0


def test_what_was_never_seen_to_loop_does_not_pause() -> None:
    assert between(pauses_of([(0, 9, 1)]), 0, 9) is None
    assert between(pauses_of([(0, 9, 0)], counter=None), 0, 9) is None
    other = Variable(Place(1, "train", "other.py"), "i")
    assert between(pauses_of([(0, 9, 0)], counter=other), 0, 9) is None


def test_a_line_that_py_spy_does_not_know_is_taken_for_one_of_the_loop() -> None:
    assert seconds(pauses_of([(0, 4, 0), (4, 4.5, 2), (4.5, 9, 0)]), 0, 9) == 0
