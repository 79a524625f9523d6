"""Rounds counted from readings of a counter that begins anew with each epoch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.steps.count import Count


class Moment(NamedTuple):
    """From ``at_s`` on a program is in a round of an epoch; None: between two epochs."""

    at_s: float
    epoch: int
    round: int | None
    made: int


def epochs(
    *lengths: int, step_s: float = 0.05, pause_s: float = 0.0, jitter: float = 0.0
) -> Iterator[Moment]:
    """Yield when each round of epochs of these lengths begins."""
    chance, at_s, made = random.Random(1), 0.0, 0
    for epoch, length in enumerate(lengths):
        for number in range(length):
            yield Moment(at_s, epoch, number, made)
            at_s += step_s * chance.uniform(1 - jitter, 1 + jitter)
            made += 1
        yield Moment(at_s, epoch, None, made - 1)
        at_s += pause_s


class Followed:
    """A count that reads a program as the reader does: each tenth of a second, and closer at first,
    until its pace is known.

    ``off`` is how much more than it says the count has ever gone wrong. While the loop pauses its
    variable is there (``stands``), or is not.
    """

    def __init__(
        self,
        moments: Iterator[Moment],
        *,
        stands: bool = False,
        every_s: float = 0.1,
    ) -> None:
        self.count = Count()
        self.off = 0
        program, at_s = list(moments), 0.0
        place = 0
        first: tuple[int, int] | None = None
        now = program[0]
        while place < len(program) - 1:
            while place < len(program) - 1 and program[place + 1].at_s <= at_s:
                place += 1
            now = program[place]
            number = program[place - 1].round if now.round is None and stands else now.round
            if number is None:
                self.count.leave(round(at_s * SECOND_NS))
                at_s += 0.1
                continue
            self.count.take(round(at_s * SECOND_NS), number)
            if first is None or not self.count.is_known:
                first = now.made - self.count.rounds, self.count.error
            wrong = abs(self.count.rounds - now.made + first[0])
            self.off = max(self.off, wrong - self.count.error - first[1])
            is_early = at_s < 1
            at_s += min(0.02 if is_early else every_s, every_s if self.count.is_known else 0.005)
        self.apart = abs(self.count.rounds - now.made + (first or (0, 0))[0])
        self.made = now.made


def test_a_counter_that_only_grows_is_the_count() -> None:
    followed = Followed(epochs(1000))
    assert (followed.count.rounds, followed.count.error, followed.off) == (998, 0, 0)
    assert followed.count.per_s() == pytest.approx(20, rel=0.01)
    count = Count(is_added=True)
    for tenth in range(40):
        count.take(tenth * SECOND_NS // 10, 30 * tenth)
    assert (count.rounds, count.error) == (30 * 39, 0)


STEPS_S = (0.004, 0.02, 0.1)
LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "alike": lambda chance: 100,
    "episodes": lambda chance: 9 + int(chance.expovariate(1 / 50)),
    "mostly short ones": lambda chance: chance.choice((3, 4, 5, 17)),
    "two kinds": lambda chance: chance.choice((60, 130)),
}


@pytest.mark.parametrize("every_s", [0.1, 0.3])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_count_is_within_the_error_that_it_states(lengths: str, every_s: float) -> None:
    """However long the epochs are, and however fast. Some rounds are off until short ones are seen."""
    for seed, step_s in enumerate(STEPS_S):
        for pause_s in (0.0, 0.5):
            chance = random.Random(seed)
            made = [LENGTHS[lengths](chance) for _ in range(max(int(60 / (100 * step_s)), 5))]
            followed = Followed(
                epochs(*made, step_s=step_s, pause_s=pause_s, jitter=0.3),
                stands=seed % 2 == 0,
                every_s=every_s,
            )
            assert followed.off <= 4, (step_s, pause_s)


@pytest.mark.parametrize("pause_s", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("lengths", [[100] * 20, [60, 130] * 10])
def test_epochs_of_some_seconds_are_counted_nearly_exactly(
    pause_s: float, lengths: list[int]
) -> None:
    followed = Followed(epochs(*lengths, pause_s=pause_s))
    assert followed.off <= 1
    assert followed.apart <= followed.count.error <= 0.05 * followed.made


@pytest.mark.parametrize(("mean", "part"), [(16, 0.25), (60, 0.08), (200, 0.05)])
def test_episodes_are_counted_by_their_pace(mean: int, part: float) -> None:
    chance = random.Random(3)
    lengths = [9 + int(chance.expovariate(1 / (mean - 9))) for _ in range(6_000 // mean)]
    followed = Followed(epochs(*lengths, step_s=0.017, jitter=0.3), stands=True)
    assert followed.apart <= part * followed.made
    assert followed.apart <= followed.count.error


def test_a_loop_that_begins_anew_before_its_pace_is_known_has_no_count() -> None:
    count = Count()
    for tenth in range(100):
        count.take(tenth * SECOND_NS // 10, 17 * tenth % 23)
        assert count.is_known == (tenth < 2)
    for tenth in range(100, 120):
        count.take(tenth * SECOND_NS // 10, tenth)
    assert count.is_known


def test_a_counter_that_goes_up_at_the_end_of_a_round_stands_at_the_number_of_rounds() -> None:
    count = Count(is_late=True)
    for tenth in range(60):
        count.take(tenth * SECOND_NS // 10, min(2 * tenth, 100))
    for tenth in range(60, 70):
        count.take(tenth * SECOND_NS // 10, 2 * (tenth - 60))
    assert abs(count.rounds - 118) <= count.error <= 3


def test_a_round_is_dated_to_when_it_was_first_seen_and_the_last_ones_are_made() -> None:
    count = Count()
    for tenth in range(40):
        count.take(tenth * SECOND_NS // 10, tenth // 30)
        assert count.has_moved == (tenth >= 30)
    assert count.changed_ns == 3 * SECOND_NS
    count = Count()
    for tenth in range(50):
        count.take(tenth * SECOND_NS // 10, 2 * tenth)
    assert (count.rounds, count.error, count.rest(0.1)) == (98, 0, (2, 1))


@pytest.mark.parametrize(
    ("number", "back_s", "at_s", "made"),
    [(55, 3.0, 4.4, 63 - 45 + 55), (46, 3.0, 3.02, 1)],
    ids=["a function that was called again", "a generator that went on"],
)
def test_a_loop_that_was_left_has_begun_anew_if_its_pace_says_so(
    number: int, back_s: float, at_s: float, made: int
) -> None:
    count = Count()
    for tenth in range(12):
        count.take(tenth * SECOND_NS // 10, 1 + 4 * tenth)
    for left_s in (1.5, back_s):
        count.leave(round(left_s * SECOND_NS))
    count.take(round(at_s * SECOND_NS), number)
    assert count.rounds - 45 == pytest.approx(made, abs=3)
    assert count.error <= 63  # nobody knows


def test_an_epoch_that_may_have_passed_between_two_readings_is_in_the_error() -> None:
    count = Count()
    at_s = 0.0
    for made in range(0, 200, 3):  # 100 rounds a second
        at_s = made / 100
        count.take(round(at_s * SECOND_NS), made % 63)
    rounds, error = count.rounds, count.error
    assert abs(rounds - 198) <= error
    count.take(round((at_s + 0.6) * SECOND_NS), 20)  # 11 more, or 74
    assert count.rounds - count.error <= rounds + error + 11
    assert count.rounds + count.error >= rounds - error + 74


def test_a_counter_that_goes_on_over_epochs_is_steady_once_its_pace_is_known() -> None:
    whole, added = Count(), Count(is_added=True)
    for tenth in range(20):
        for count in (whole, added):
            count.take(tenth * SECOND_NS // 10, 4 * tenth)
        assert (whole.is_steady, added.is_steady) == (False, tenth > 4)


@pytest.mark.parametrize(("number", "made", "error"), [(4, 4, 0), (629, 0, 6)])
def test_a_number_that_the_loop_cannot_have_made_since_counts_from_there_on(
    number: int, made: int, error: int
) -> None:
    count = Count(most_before=6.0)
    count.take(SECOND_NS, number)
    assert (count.rounds, count.error) == (made, error)
    count.take(2 * SECOND_NS, number + 10)
    assert (count.rounds, count.error) == (made + 10, error)
    count = Count(most_before=2.0, goes_on=True)
    count.take(SECOND_NS, 2)
    assert (count.rounds, count.error) == (0, 2)
