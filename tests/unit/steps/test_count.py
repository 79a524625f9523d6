"""Rounds counted from readings of a counter that begins anew with each epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator
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
    """A count that reads a program as the reader does: each tenth of a second, and closer where it
    asks for that.

    With ``every_s`` it reads no closer, as where readings have become too dear.

    ``off`` is how much more than that the count has gone wrong that it says. While the loop pauses
    its variable is there (``stands``), or is not.
    """

    def __init__(
        self,
        moments: Iterator[Moment],
        *,
        stands: bool = False,
        knows_epoch: bool = False,
        ends: int | None = None,
        every_s: float | None = None,
        breaks: bool = False,
    ) -> None:
        self.count = Count(breaks=breaks)
        self.off = 0
        program, at_s = list(moments), 0.0
        place = 0
        first: int | None = None
        while place < len(program) - 1:
            while place < len(program) - 1 and program[place + 1].at_s <= at_s:
                place += 1
            now = program[place]
            number = program[place - 1].round if now.round is None and stands else now.round
            if number is None:
                self.count.leave(round(at_s * SECOND_NS))
                at_s += 0.1
                continue
            self.count.take(
                round(at_s * SECOND_NS), number, now.epoch if knows_epoch else None, ends
            )
            first = now.made - self.count.rounds if first is None else first
            wrong = abs(self.count.rounds - now.made + first)
            self.off = max(self.off, wrong - self.count.error)
            closer_s = 0.002 if self.count.is_near_end(0.1) else 0.012 if self.count.unsure else 0.1
            at_s += every_s or closer_s
        self.made = now.made - (first or 0)


def test_a_counter_that_only_grows_is_the_count_and_a_range_says_how_long_an_epoch_is() -> None:
    followed = Followed(epochs(1000))
    assert (followed.count.rounds, followed.count.error, followed.off) == (998, 0, 0)
    assert followed.count.per_s() == pytest.approx(20, rel=0.01)
    followed = Followed(epochs(100, 100, pause_s=1.0), ends=100)
    assert (followed.count.rounds, followed.count.error) == (199, 0)
    followed = Followed(epochs(*[7] * 200, step_s=0.01), knows_epoch=True, ends=7)
    assert (followed.count.error, followed.off) == (0, 0)
    count = Count(is_added=True)
    for tenth in range(40):
        count.take(tenth * SECOND_NS // 10, 30 * tenth, tenth // 2)
    assert (count.rounds, count.error) == (30 * 39, 0)


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize("pause_s", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_epochs_are_counted_exactly_once_their_length_is_seen(
    stands: bool, pause_s: float, jitter: float
) -> None:
    followed = Followed(epochs(*[100] * 6, pause_s=pause_s, jitter=jitter), stands=stands)
    assert followed.count.length == 100
    assert (followed.count.error, followed.off) == (0, 0)
    assert abs(followed.count.rounds - followed.made) <= 1


def test_epochs_of_unlike_lengths_are_within_their_error_until_they_are_alike_again() -> None:
    chance = random.Random(2)
    followed = Followed(
        epochs(*[chance.randrange(60, 140) for _ in range(8)], pause_s=0.5, jitter=0.2)
    )
    assert abs(followed.count.rounds - followed.made) <= followed.count.error
    assert followed.count.length is None
    for other in (130, 60):
        few, many = (
            Followed(epochs(100, 100, other, *[100] * more, pause_s=0.5)).count for more in (6, 30)
        )
        assert few.length == many.length == 100
        assert few.error == many.error > 0
        assert many.rounds - few.rounds == 24 * 100


def test_a_counter_that_goes_up_at_the_end_of_a_round_stands_at_the_number_of_rounds() -> None:
    count = Count(is_late=True)
    for tenth in range(60):
        count.take(tenth * SECOND_NS // 10, min(2 * tenth, 100))
    for tenth in range(60, 70):
        count.take(tenth * SECOND_NS // 10, 2 * (tenth - 60))
    assert count.length == 100
    assert (count.rounds, count.error) == (118, 0)


def test_a_round_is_dated_to_when_it_was_first_seen_and_the_last_ones_are_made() -> None:
    count = Count()
    for tenth in range(40):
        count.take(tenth * SECOND_NS // 10, tenth // 30)
        assert count.has_moved == (tenth >= 30)
    assert count.changed_ns == 3 * SECOND_NS
    for end, rest in ((100, (2, 0)), (None, (2, 1))):
        count = Count()
        for tenth in range(50):
            count.take(tenth * SECOND_NS // 10, 2 * tenth, end=end)
        assert (count.rounds, count.error, count.rest(0.1)) == (98, 0, rest)


def test_epochs_that_may_have_been_left_out_are_in_doubt() -> None:
    errors = []
    for early in (0, 4):
        count = Count(early=early)
        for tenth, epoch in enumerate(
            [0, 1, 3, 4, 5, 9]
        ):  # of four in each group: 5 leaves two in doubt
            count.take(tenth * SECOND_NS // 10, 0, epoch, 3)
        errors.append(count.error)
        assert count.rounds == 27
    assert errors == [0, 2 * 3]


@pytest.mark.parametrize(
    ("number", "back_s", "at_s", "made", "error"),
    [(55, 3.0, 4.4, 63 - 45 + 55, 0), (46, 3.0, 3.02, 1, 0)],
    ids=["a function that was called again", "a generator that went on"],
)
def test_a_loop_that_was_left_has_begun_anew_where_its_pace_says_so(
    number: int, back_s: float, at_s: float, made: int, error: int
) -> None:
    count = Count()
    count.length = 63
    for tenth in range(12):
        count.take(tenth * SECOND_NS // 10, 1 + 4 * tenth)
    assert (count.round, count.rounds) == (45, 45)
    for left_s in (1.5, back_s):
        count.leave(round(left_s * SECOND_NS))
    count.take(round(at_s * SECOND_NS), number)
    assert (count.rounds - 45, count.error) == (made, error)


def test_where_an_epoch_may_have_passed_between_two_readings_the_error_says_so() -> None:
    count = Count()
    count.length = 63
    for tenth in range(8):  # 100 rounds a second; a pause takes some of them
        count.take(tenth * SECOND_NS // 10, 10 * tenth % 63)
    assert count.error == 0
    count.take(round(1.4 * SECOND_NS), 20)  # 13 more, or 76
    assert count.error == 63
    count.take(round(1.45 * SECOND_NS), 25)
    assert count.error == 63


@pytest.mark.parametrize("knows_epoch", [True, False])
@pytest.mark.parametrize("every_s", [0.1, 0.3])
@pytest.mark.parametrize(("mean", "part"), [(16, 0.25), (60, 0.08), (200, 0.05)])
def test_episodes_are_counted_by_their_pace_also_where_whole_ones_pass_between_two_readings(
    mean: int, part: float, every_s: float, knows_epoch: bool
) -> None:
    chance = random.Random(3)
    lengths = [9 + int(chance.expovariate(1 / (mean - 9))) for _ in range(6_000 // mean)]
    program = epochs(*lengths, step_s=0.017, jitter=0.3)
    followed = Followed(program, stands=True, knows_epoch=knows_epoch, every_s=every_s)
    apart = abs(followed.count.rounds - followed.made)
    assert apart <= part * followed.made
    assert apart <= followed.count.error


def test_a_range_that_is_read_as_its_first_round_was_left_does_not_say_how_many_it_had() -> None:
    count = Count(breaks=True)
    for tenth in range(16):
        count.take(tenth * SECOND_NS // 10, 4 * tenth)
    count.take(round(1.506 * SECOND_NS), 0, end=10_000)
    assert count.rounds == 61


def test_a_loop_that_may_be_left_is_far_from_its_end_once_it_has_gone_on_for_long() -> None:
    leavable, whole = Count(breaks=True), Count()
    far = []
    for tenth in range(200):
        for count in (leavable, whole):
            count.take(tenth * SECOND_NS // 10, 4 * tenth, end=10_000)
        assert whole.is_far_from_end(4.0) == (tenth > 3)
        far.append(leavable.is_far_from_end(4.0))
    assert far == [tenth >= 160 for tenth in range(200)]


@pytest.mark.parametrize("knows_epoch", [True, False])
def test_an_epoch_that_had_no_time_to_go_on_to_the_longest_ends_early(knows_epoch: bool) -> None:
    followed = Followed(epochs(300, 60, 30), stands=True, knows_epoch=knows_epoch, every_s=0.27)
    apart = abs(followed.count.rounds - followed.made)
    assert apart <= followed.count.error <= 12


@pytest.mark.parametrize("knows_epoch", [True, False])
def test_a_range_that_a_loop_may_leave_does_not_say_how_many_rounds_it_had(
    knows_epoch: bool,
) -> None:
    chance = random.Random(6)
    lengths = [9 + int(chance.expovariate(1 / 50)) for _ in range(60)]
    followed = Followed(
        epochs(*lengths, step_s=0.02, jitter=0.3),
        stands=True,
        knows_epoch=knows_epoch,
        ends=10_000,
        breaks=True,
    )
    assert abs(followed.count.rounds - followed.made) <= min(
        0.03 * followed.made, followed.count.error
    )
    late = Count(breaks=True)
    for tenth in range(100):
        late.take(tenth * SECOND_NS // 10, tenth % 20, end=None if tenth < 30 else 10_000)
    assert abs(late.rounds - 99) <= late.error < 60
    whole = Followed(epochs(*[50] * 20, step_s=0.02), stands=True, ends=50, breaks=True)
    assert (whole.count.length, whole.count.error, whole.off) == (50, 0, 0)


def test_a_pause_at_the_end_of_an_epoch_makes_no_episodes_of_them() -> None:
    program = [*epochs(*[100] * 4, step_s=0.03)]
    late = [
        moment._replace(at_s=moment.at_s + moment.epoch + ((moment.round or 0) > 95))
        for moment in program
    ]
    followed = Followed(iter(late), every_s=0.25)
    assert not followed.count.varies


def known(length: int = 63) -> Count:
    """Return a count of epochs of so many rounds, 40 a second at most, that was read in the last
    one of the first.
    """
    count = Count()
    for tenth in range(length // 4 + 1):
        count.take(tenth * SECOND_NS // 10, min(4 * tenth, length - 1), 0)
    count.length = length
    return count


def test_the_number_of_the_next_epoch_counts_from_its_first_round_on() -> None:
    count = known()
    assert (count.rounds, count.round) == (60, 60)
    count.take(
        round(1.6 * SECOND_NS), 62, 1
    )  # the last round of the epoch before: workers of the next one begin
    for at_s in (1.8, 2.1, 2.4, 2.7, 3.0, 3.3, 3.6):
        count.take(round(at_s * SECOND_NS), 62, 1)
    assert (count.rounds, count.error) == (62, 0)
    count.take(round(3.7 * SECOND_NS), 2, 1)
    assert (count.rounds, count.error) == (65, 0)
    count.take(round(7.0 * SECOND_NS), 10, 3)  # the second was over meanwhile, and so was the third
    assert (count.rounds, count.error) == (2 * 63 + 73, 0)


def test_a_counter_that_stands_just_before_the_end_that_is_known_shows_no_other_end() -> None:
    count = known()
    for at_s, number, epoch in (
        (1.6, 62, 0),
        (1.7, 2, 1),
        (2.4, 30, 1),
        (3.0, 58, 1),
        (4.5, 58, 1),
        (4.6, 0, 2),
    ):
        count.take(round(at_s * SECOND_NS), number, epoch)
    assert (count.length, count.varies, count.rounds, count.error) == (63, False, 2 * 63, 0)


def test_ends_of_epochs_that_are_read_in_the_same_round_show_how_many_they_have() -> None:
    count = Count()
    for epoch in range(4):
        for tenth in range(16):
            count.take((20 * epoch + tenth) * SECOND_NS // 10, min(4 * tenth, 59), epoch)
        assert count.length == (60 if epoch > 2 else None)
    assert (count.rounds, count.error) == (3 * 60 + 59, 0)


def test_an_epoch_that_passed_between_two_readings_counts_at_once_also_where_the_loop_mostly_rests() -> (
    None
):
    count = known(40)
    for tenth in range(12, 90, 4):
        count.take(tenth * SECOND_NS // 10, 39, 0)
    count.take(round(9.1 * SECOND_NS), 5, 1)
    count.take(round(10.1 * SECOND_NS), 8, 2)
    assert (count.rounds, count.error) == (2 * 40 + 8, 0)


def test_epochs_whose_number_has_begun_anew_may_have_been_more_than_one() -> None:
    count = known()
    for at_s, number, epoch in ((1.6, 62, 0), (1.7, 2, 1), (2.4, 30, 1), (3.1, 58, 1)):
        count.take(round(at_s * SECOND_NS), number, epoch)
    assert (count.rounds, count.error) == (63 + 58, 0)
    count.take(
        round(5.2 * SECOND_NS), 15, 0
    )  # the last epoch was the second; or the third, which no reading saw
    assert count.rounds == 2 * 63 + 15
    assert count.error == 63
    count.take(round(5.4 * SECOND_NS), 23, 0)
    assert (count.rounds, count.error) == (2 * 63 + 23, 63)
