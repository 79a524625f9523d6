"""Steps before the first count of a run and after the last one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.synthetic import STARTED_NS

from profd.daemon.analyze.steps.unread import NONE, LoopTimes, Unread, Visits, made_after, made_before
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.rows import PointRow

STEADY = [(5, 90.0), (15, 290.0), (25, 490.0), (35, 690.0)]


class Stepping:
    """A loop that steps all the time but for some ranges, in seconds."""

    def __init__(self, *aside: tuple[float, float]) -> None:
        self._aside = [(at_ns(from_s), at_ns(to_s)) for from_s, to_s in aside]

    def stepping_ns(self, from_ns: int, to_ns: int) -> float:
        lost = sum(max(min(end, to_ns) - max(start, from_ns), 0) for start, end in self._aside)
        return to_ns - from_ns - lost


def at_ns(seconds: float) -> int:
    return STARTED_NS + round(seconds * SECOND_NS)


def points(counts: Sequence[tuple[float, float]]) -> list[PointRow]:
    return [PointRow(at_ns(seconds), value) for seconds, value in counts]


def times(*aside: tuple[float, float]) -> LoopTimes:
    return lambda _range, _counts: Stepping(*aside)


def before(
    counts: Sequence[tuple[float, float]],
    visits: Visits | None = None,
    *aside: tuple[float, float],
    is_launched: bool = True,
) -> Unread:
    return made_before(points(counts), STARTED_NS, visits, times(*aside), is_launched=is_launched)


def test_steps_go_on_at_their_pace_after_the_last_count() -> None:
    after = made_after(points(STEADY), at_ns(45), None, times())
    assert after.steps == pytest.approx(200)
    # By a hundredth it may change for good, and by more, as only a few paces tell.
    assert after.error == pytest.approx((0.01 + 0.15 / 3) * 200)


def test_no_steps_are_made_while_the_loop_evaluates() -> None:
    counts = [(5, 90.0), (15, 290.0), (30, 490.0), (40, 690.0)]
    after = made_after(points(counts), at_ns(55), None, times((18, 23), (45, 55)))
    assert after.steps == pytest.approx(100)
    # The count that came late was no slower one.
    assert after.error == pytest.approx((0.01 + 0.15 / 3) * 100)


def test_the_error_is_as_large_as_the_pace_varies() -> None:
    uneven = made_after(points([(5, 0), (15, 160), (25, 400), (35, 560)]), at_ns(45), None, times())
    assert uneven.steps == pytest.approx(187, abs=1)
    assert 40 < uneven.error < 140
    lone = made_after(points(STEADY[:2]), at_ns(25), None, times())
    assert lone == pytest.approx((200, 32))


def test_short_times_that_are_uneven_say_less_than_a_long_one_that_is_even() -> None:
    short = [(0.0, 0.0), (0.3, 8.0), (0.6, 12.0), (0.9, 20.0), (1.2, 24.0)]
    after = made_after(points([*short, (15.2, 304)]), at_ns(27.2), None, times())
    assert after.steps == pytest.approx(240)
    assert 20 < after.error < 40


def test_only_the_nearest_counts_tell_the_pace() -> None:
    slowing = [(0, 0.0), (60, 6000.0), (120, 6600.0), (130, 6700.0), (140, 6800.0)]
    assert made_after(points(slowing), at_ns(150), None, times()).steps == pytest.approx(100)


def test_visits_tell_what_follows_where_they_are_surer_than_a_pace() -> None:
    slowed = Visits(unread=75, read=300, error_share=0.02, counted=600)
    assert made_after(points(STEADY), at_ns(45), slowed, times()) == pytest.approx((150, 3))
    vague = slowed._replace(error_share=0.2)
    assert made_after(points(STEADY), at_ns(45), vague, times()).steps == pytest.approx(200)


def test_nothing_follows_a_count_at_the_end() -> None:
    assert made_after(points(STEADY), at_ns(35), None, times()) == NONE


def test_a_counter_that_can_have_been_there_from_the_launch_says_what_was_made_before() -> None:
    assert before(STEADY) == Unread(90, 0)


def test_steps_of_a_run_that_goes_on_from_a_checkpoint_are_those_since_the_launch() -> None:
    resumed = [(seconds, value + 50_000) for seconds, value in STEADY]
    assert before(resumed, None, (0, 3)) == pytest.approx((40, 40 * (0.01 + 0.15 / 3)))


def test_an_attached_run_made_steps_before_its_counter_was_found() -> None:
    assert before(STEADY, is_launched=False) == pytest.approx((100, 100 * (0.01 + 0.15 / 3)))


def test_visits_tell_of_epochs_before_the_one_that_the_counter_was_first_seen_in() -> None:
    # Two visits are seen for each step: forty a step were made where the counter says ninety.
    visits = Visits(unread=380, read=400, error_share=0.05, counted=200)
    assert before(STEADY, visits) == pytest.approx((190, 9.5))


@pytest.mark.parametrize("seen", [100, 180, 220])
def test_visits_are_believed_only_where_they_tell_of_far_more_than_the_counter(seen: float) -> None:
    assert before(STEADY, Visits(seen, 400, 0.05, 200)) == Unread(90, 0)


def test_visits_that_are_hardly_known_are_not_believed() -> None:
    assert before(STEADY, Visits(300, 400, 0.5, 200)) == Unread(90, 0)


def test_visits_count_for_a_run_that_goes_on_from_a_checkpoint() -> None:
    resumed = [(seconds, value + 50_000) for seconds, value in STEADY]
    assert before(resumed, Visits(180, 400, 0.05, 200)).steps == pytest.approx(90)
