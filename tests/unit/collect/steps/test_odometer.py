"""Steps added up from sightings of a counter: growth, new cycles, and values that make no sense."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.odometer import Count, Odometer
from profd.daemon.collect.steps.sightings import Sighting


def counts_of(
    seen: Sequence[tuple[float, int] | tuple[float, int, int]], *, stride: int = 1, error_ns: int = 0
) -> list[Count]:
    """Return the counts of (seconds, value) or (seconds, value, outer)."""
    odometer = Odometer(stride, 20.0)
    counts: list[Count] = []
    for at_s, value, *outer in seen:
        sighting = Sighting(int(at_s * SECOND_NS), error_ns, value, 0, 0)
        counts += odometer.take(sighting, outer[0] if outer else None)
    return counts


def steps_of(seen: Sequence[tuple[float, int] | tuple[float, int, int]], *, stride: int = 1) -> list[int]:
    return [count.steps for count in counts_of(seen, stride=stride)]


def test_counts_begin_at_the_counter_and_grow_with_it() -> None:
    assert steps_of([(0, 500), (5, 600), (10, 700)]) == [500, 600, 700]


def test_a_stride_is_one_step() -> None:
    assert steps_of([(0, 0), (5, 3200), (10, 6400)], stride=32) == [0, 100, 200]


def test_an_error_is_what_the_loop_steps_while_it_is_read() -> None:
    assert [count.error_steps for count in counts_of([(0, 0), (5, 100)], error_ns=SECOND_NS // 10)] == [2.0, 2.0]


def test_a_new_cycle_goes_on_from_the_last_one() -> None:
    # 20 a second and 200 in a cycle, seen close to its end: 198 steps, 2 more, then 8 of the next.
    assert steps_of([(0, 98, 0), (5, 198, 0), (5.5, 8, 1), (10.5, 108, 1)]) == [98, 198, 208, 308]


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_last_value_of_an_epoch_is_still_there_when_the_next_one_has_begun(epochs: int) -> None:
    """Until its first batch is loaded."""
    seen = [(0, 98, 0), (5, 198, 0), (5.5, 8, 1), (10.5, 108, 1), (15, 198, 1)]
    stale_s = 15 + 10 * epochs + 0.04
    counts = steps_of([*seen, (stale_s, 199, 2 + epochs), (stale_s + 1, 18, 2 + epochs)])
    assert counts[4:] == [398, 399 + 200 * epochs, 418 + 200 * epochs]


def test_a_last_value_is_of_the_new_epoch_where_the_time_was_long_enough() -> None:
    assert steps_of([(0, 98, 0), (5, 198, 0), (5.5, 8, 1), (15, 198, 1), (25, 199, 2)])[-2:] == [398, 599]


def test_a_new_cycle_is_believed_once_it_is_confirmed_where_no_loop_around_is_seen() -> None:
    seen = [(0, 98), (5, 198), (5.5, 8), (8, 58), (10.5, 108)]
    assert steps_of(seen[:4]) == [98, 198]
    assert steps_of(seen) == [98, 198, 208, 258, 308]


def test_two_torn_values_that_go_together_are_no_new_cycle() -> None:
    assert steps_of([(0, 1000), (5, 1100), (10, 1), (14, 81), (20, 1400), (25, 1500)]) == [1000, 1100, 1400, 1500]


@pytest.mark.parametrize("torn", [0, 3, 10**9, -7])
def test_a_torn_value_is_passed_over(torn: int) -> None:
    seen = [(0, 1000), (5, 1100), (10, torn), (15, 1300), (20, 1400)]
    assert steps_of(seen) == [1000, 1100, 1300, 1400]


def test_cycles_are_held_back_until_their_length_is_close() -> None:
    far = [(0, 20, 0), (4, 100, 0), (9, 0, 1), (13, 80, 1)]
    assert steps_of(far) == [20, 100]
    closer = [*far, (18.9, 198, 1), (19.1, 2, 2), (24.1, 102, 2)]
    assert steps_of(closer) == [20, 100, 200, 280, 398, 402, 502]


def test_what_is_held_back_is_given_in_the_end() -> None:
    odometer = Odometer(1, 20.0)
    seen = [(0, 20, 0), (4, 100, 0), (9, 0, 1), (13, 80, 1)]
    for at_s, value, outer in seen:
        odometer.take(Sighting(at_s * SECOND_NS, 0, value, 0, 0), outer)
    rest = odometer.rest()
    assert [count.at_ns for count in rest] == [9 * SECOND_NS, 13 * SECOND_NS]
    assert abs(rest[-1].steps - 280) <= rest[-1].error_steps
    assert odometer.rest() == []


def test_cycles_are_not_held_back_for_ever() -> None:
    seen = [(10 * epoch + into_s, int(20 * into_s), epoch) for epoch in range(4) for into_s in (2.0, 5.0)]
    counts = counts_of(seen)
    assert len(counts) == len(seen)
    assert counts[-1].error_steps > 10
    assert abs(counts[-1].steps - 700) <= counts[-1].error_steps


def test_a_pause_between_cycles_is_within_the_error() -> None:
    """Twelve seconds a cycle, ten of them steps: the rate alone would take a cycle for 240 steps."""
    late_s = (0.0, 0.3, -0.2, 0.1, 0.0)
    seen = [
        (12 * epoch + into_s + late_s[epoch], int(20 * (into_s + late_s[epoch])), epoch)
        for epoch in range(5)
        for into_s in (1.0, 5.0, 9.0)
    ]
    last = counts_of(seen)[-1]
    assert abs(last.steps - (4 * 200 + 180)) <= last.error_steps


def test_several_cycles_between_two_sightings_are_counted() -> None:
    seen = [(0.1, 2, 0), (0.9, 18, 0), (1.05, 1, 1), (1.95, 19, 1), (2.05, 1, 2), (7.05, 1, 7)]
    assert steps_of(seen)[-1] == pytest.approx(141, abs=8)


def test_two_cycles_that_no_second_sighting_falls_into_count() -> None:
    seen = [
        (0, 0),
        (1, 20),
        (4, 80),
        (4.9, 98),
        (7.5, 50),
        (10.2, 4),
        (11, 20),
        (14.9, 98),
        (15.5, 10),
        (16, 20),
        (17, 40),
    ]
    last = counts_of(seen)[-1]
    assert abs(last.steps - 340) <= last.error_steps < 60


def test_a_loop_that_fell_behind_without_a_reason_may_have_started_over_unseen() -> None:
    seen = [(0, 0), (1, 20), (4, 80), (12, 90), (12.5, 100), (13, 110)]
    last = counts_of(seen)[-1]
    assert last.steps == 110
    assert last.steps + last.error_steps >= 13 * 20 - 5


def test_sightings_that_make_no_sense_are_counted() -> None:
    odometer = Odometer(1, 20.0)
    for number, value in enumerate((100, 200, 7, 0, 9, 2)):
        odometer.take(Sighting(5 * number * SECOND_NS, 0, value, 0, 0))
    assert odometer.doubts > 0
