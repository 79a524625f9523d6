"""How long a cycle is, by what was seen of its counter around its ends."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.cyclelength import Bound, CycleLength, closest_bound
from profd.daemon.collect.steps.gait import Gait, Position
from profd.daemon.collect.steps.pauses import Pause, Pauses

RATE_PER_S = 20.0
STEPS = 200


def position(at_s: float, value: int) -> Position:
    return Position(int(at_s * SECOND_NS), 0, value, None)


class Told(Pauses):
    """What samples tell of the pause at each end, in order."""

    def __init__(self, *told_s: float | None) -> None:
        super().__init__()
        self._told_s = told_s
        self._asked: list[int] = []

    def between(self, from_ns: int, to_ns: int) -> Pause | None:
        if from_ns not in self._asked:
            self._asked.append(from_ns)
        told_s = self._told_s[self._asked.index(from_ns)]
        return None if told_s is None else Pause(told_s, 0.03)


def length_of(*ends: tuple[float, float, float], pauses: Pauses | None = None) -> CycleLength:
    """Return what is known after some ends: seconds before one, seconds after it, and a pause between the two."""
    gait = Gait(RATE_PER_S)
    length = CycleLength(gait, pauses)
    at_s = 0.0
    for before_s, after_s, pause_s in ends:
        before = position(at_s, STEPS - int(before_s * RATE_PER_S))
        at_s += before_s + pause_s + after_s
        after = position(at_s, int(after_s * RATE_PER_S))
        for seen in (before, after):
            length.see(seen.value)
        length.see_end(before, after, 1)
        at_s += 1
    return length


def is_within(length: CycleLength, steps: int) -> bool:
    estimate, error = length.estimate()
    return abs(estimate - steps) <= error


def test_an_end_that_was_seen_from_close_by_says_more_than_others() -> None:
    length = length_of((3, 2.5, 0), (0.2, 0.3, 0), (2, 2, 0))
    estimate, error = length.estimate()
    assert abs(estimate - STEPS) <= error < 5


def test_a_pause_at_one_end_makes_no_cycle_longer() -> None:
    length = length_of((0.4, 0.5, 0), (0.4, 0.5, 4), (0.5, 0.3, 0))
    estimate, error = length.estimate()
    assert abs(estimate - STEPS) <= error < 10


def test_pauses_that_samples_show_are_not_taken_for_steps() -> None:
    ends = ((0.4, 0.5, 2), (0.4, 0.5, 4), (0.5, 0.3, 2))
    assert length_of(*ends).estimate()[0] > STEPS + 30
    for told in ((2, 4, 2), (2, None, None), (None, 4, 2)):
        assert abs(length_of(*ends, pauses=Told(*told)).estimate()[0] - STEPS) <= 3


def test_pauses_that_leave_no_room_for_the_steps_that_were_seen_are_not_believed() -> None:
    ends = ((0.4, 0.5, 0), (0.4, 0.5, 0))
    assert length_of(*ends, pauses=Told(6, 6)).estimate() == length_of(*ends).estimate()


def test_exact_bounds_weigh_more() -> None:
    wanted, margin = closest_bound([Bound(200, 2), Bound(210, 20), Bound(206, 20)], least=180)
    assert abs(wanted - 200) < 0.5
    assert margin == 2


def test_bounds_with_a_pause_in_them_are_left_out() -> None:
    assert closest_bound([Bound(200, 2), Bound(260, 10)], least=180) == Bound(200, 2)


def test_a_bound_below_what_the_counter_has_reached_says_nothing() -> None:
    assert closest_bound([Bound(150, 10), Bound(200, 2)], least=180) == Bound(200, 2)
    assert closest_bound([Bound(150, 10)], least=180) == Bound(180, 10)


def test_bounds_that_differ_by_more_than_their_margins_widen_the_error() -> None:
    wanted, margin = closest_bound([Bound(200, 3), Bound(205, 3)], least=180)
    assert (wanted, margin) == (202.5, 3)
    assert closest_bound([Bound(200, 3), Bound(206, 3), Bound(190, 20), Bound(230, 30)], 180).margin > 3


def test_a_value_at_which_many_cycles_are_met_is_the_last() -> None:
    length = length_of((3, 2.5, 3), (2, 2, 3))
    for _ in range(4):
        assert length.estimate()[1] > 5
        length.see(STEPS - 1)
    assert length.estimate() == (STEPS, 1.0)


def test_a_value_that_was_passed_is_not_the_last() -> None:
    length = length_of((3, 2.5, 3), (2, 2, 3))
    for value in [STEPS - 9] * 4:
        length.see(value)
    assert length.estimate() == (STEPS - 8, 1.0)
    length.see(STEPS - 1)
    assert is_within(length, STEPS)
    assert length.estimate()[1] > 5


def test_a_short_cycle_is_met_at_any_of_its_values() -> None:
    length = length_of((3, 2.5, 3), (2, 2, 3))
    for value in [*range(STEPS - 9), *[STEPS - 9] * 4]:
        length.see(value)
    assert length.estimate()[1] > 5


def test_a_value_that_is_met_a_little_too_early_each_time_is_not_the_last() -> None:
    """A rate that is told a little too high lets readings come before the end, cycle after cycle."""
    length = length_of((3, 2.5, 0), (2, 2, 0))
    for _ in range(8):
        length.see(STEPS - 9)
    steps, error_steps = length.estimate()
    assert abs(steps - STEPS) <= error_steps
