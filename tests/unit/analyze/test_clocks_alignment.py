"""How far two clocks are apart, from moments whose truth is known."""

from __future__ import annotations

import random
from itertools import starmap

from profd.daemon.analyze.clocks import FEWEST_MATCHED, Guess, align, guess_by_counts
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.rows import PointRow

MS = MILLISECOND_NS
AHEAD_NS = 1_234_567_890


def moments(chance: random.Random, count: int = 300, step_ms: float = 90, jitter_ms: float = 20) -> list[float]:
    at_ms, found = 1e6, []
    for _ in range(count):
        at_ms += step_ms + chance.gauss(0, jitter_ms)
        found.append(at_ms)
    return found


def seen(chance: random.Random, truth: list[float], ahead_ns: int = 0, known: float = 1.0) -> list[int]:
    """Return what one side saw of the moments: some of them, to within the distance of two samples."""
    return sorted(int((at + chance.uniform(-5, 5)) * MS) + ahead_ns for at in truth if chance.random() < known)


def test_the_offset_is_found_within_its_error_95_times_in_100() -> None:
    chance, held, runs = random.Random(1), 0, 60
    for _ in range(runs):
        truth = moments(chance)
        found = align(seen(chance, truth), seen(chance, truth, AHEAD_NS, 0.4), Guess(AHEAD_NS + 20 * MS, 60 * MS))
        assert found is not None
        assert abs(found.offset_ns - AHEAD_NS) < 3 * MS
        assert found.low_ns <= found.offset_ns <= found.high_ns
        held += found.low_ns <= AHEAD_NS <= found.high_ns

    assert held >= 0.9 * runs


def test_who_knows_fewer_moments_makes_no_difference() -> None:
    chance = random.Random(2)
    truth = moments(chance)
    many, few = seen(chance, truth), seen(chance, truth, AHEAD_NS, 0.3)
    one, other = align(many, few, Guess(AHEAD_NS, 60 * MS)), align(few, many, Guess(-AHEAD_NS, 60 * MS))

    assert one is not None
    assert other is not None
    assert one.offset_ns == -other.offset_ns
    assert (one.low_ns, one.high_ns) == (-other.high_ns, -other.low_ns)


def test_uneven_steps_are_told_apart_over_a_wide_reach_and_even_ones_are_not() -> None:
    chance = random.Random(3)
    uneven, even = moments(chance), moments(chance, jitter_ms=0.2)
    wide = Guess(AHEAD_NS + 400 * MS, 1000 * MS)
    found = align(seen(chance, uneven), seen(chance, uneven, AHEAD_NS), wide)

    assert found is not None
    assert abs(found.offset_ns - AHEAD_NS) < 3 * MS
    assert align(seen(chance, even), seen(chance, even, AHEAD_NS), wide) is None


def test_even_steps_are_matched_where_the_guess_tells_them_apart_and_too_few_say_nothing() -> None:
    chance = random.Random(4)
    even = moments(chance, jitter_ms=0.2)
    found = align(seen(chance, even), seen(chance, even, AHEAD_NS), Guess(AHEAD_NS + 25 * MS, 40 * MS))

    assert found is not None
    assert abs(found.offset_ns - AHEAD_NS) < 3 * MS
    chance = random.Random(5)
    truth = moments(chance)
    few = seen(chance, truth)[: FEWEST_MATCHED - 1]

    assert align(seen(chance, truth), few, Guess(0, 60 * MS)) is None
    assert align(seen(chance, truth), seen(chance, moments(chance)), Guess(0, 1000 * MS)) is None


FIRST = list(starmap(PointRow, [(1_000, 10), (2_000, 20)]))


def test_counts_of_the_same_steps_are_as_far_apart_as_the_clocks_and_others_say_nothing() -> None:
    guess = guess_by_counts(FIRST, list(starmap(PointRow, [(1_700, 10), (2_700, 20)])))
    assert guess is not None
    assert guess.offset_ns == 700
    assert guess_by_counts(FIRST, [PointRow(1_700, 30)]) is None
    assert guess_by_counts(FIRST[:1], FIRST) is None
