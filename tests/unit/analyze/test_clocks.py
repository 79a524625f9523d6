"""How far the clocks of nodes are apart, from their run files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.noderuns import AHEAD_NS, Job
from support.present import there
from support.shiftedclocks import shift_clock
from support.training_stacks import BACKWARD, LIBRARY

from profd.daemon.analyze.clocks import (
    COLLECTIVES,
    FEWEST_MATCHED,
    FIRST,
    JOINING,
    WALL_CLOCK,
    ClockOffset,
    Guess,
    align,
    take_offsets,
)
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

MS = MILLISECOND_NS


def offset(first: Path, second: Path) -> ClockOffset:
    with RunReader(first) as one, RunReader(second) as other:
        agreed, found = take_offsets([one, other])
    assert agreed == ClockOffset(0, 0, FIRST)
    return found


@pytest.mark.parametrize("ahead_ns", [AHEAD_NS, -AHEAD_NS, 0])
def test_even_steps_are_aligned_from_the_moment_at_which_all_joined(
    ahead_ns: int, tmp_path: Path
) -> None:
    job = Job(jitter_ms=0.3)
    found = offset(
        job.write(tmp_path / "0.profd", 0),
        job.write(tmp_path / "1.profd", 1, own_share=0.9, ahead_ns=ahead_ns),
    )

    assert found.source == COLLECTIVES
    assert abs(found.offset_ns - ahead_ns) < 5 * MS
    assert abs(found.offset_ns - ahead_ns) < there(found.error_ns) < 12 * MS
    assert found.matched > 100


def test_a_rank_sampled_less_often_is_not_late_and_its_offset_less_sure(tmp_path: Path) -> None:
    job = Job(steps=800, jitter_ms=3)
    found = offset(
        job.write(tmp_path / "0.profd", 0),
        job.write(tmp_path / "1.profd", 1, own_share=0.6, sample_ms=50),
    )

    # Half of the distance of samples is 5 ms on one side, and 25 ms on the other.
    assert found.source == COLLECTIVES
    assert abs(found.offset_ns) < 8 * MS
    assert there(found.error_ns) >= 25 * MS


def test_what_some_leave_before_others_come_tells_no_clock(tmp_path: Path) -> None:
    job = Job(jitter_ms=0.3)
    where = "torch/distributed/distributed_c10d.py"
    blocking, one_sided = (
        (*BACKWARD[:3], Frame(name, LIBRARY + where, 9)) for name in ("all_reduce", "broadcast")
    )
    files = [job.write(tmp_path / f"{number}.profd", number, wait=blocking) for number in range(2)]
    other = job.write(tmp_path / "2.profd", 2, wait=one_sided)

    assert offset(files[0], files[1]).source == COLLECTIVES
    assert offset(files[0], other).source == JOINING


def test_uneven_steps_are_aligned_where_the_start_was_not_seen(tmp_path: Path) -> None:
    job = Job(jitter_ms=25)
    found = offset(
        job.write(tmp_path / "0.profd", 0, joined=False),
        job.write(tmp_path / "1.profd", 1, own_share=0.8, ahead_ns=AHEAD_NS, joined=False),
    )

    assert found.source == COLLECTIVES
    assert abs(found.offset_ns - AHEAD_NS) < 5 * MS


def test_where_nothing_tells_the_wall_clock_is_taken_and_that_is_said(tmp_path: Path) -> None:
    job = Job(jitter_ms=0.3)  # even steps: one may be taken for its neighbor
    found = offset(
        job.write(tmp_path / "0.profd", 0, joined=False),
        job.write(tmp_path / "1.profd", 1, joined=False),
    )

    assert found == ClockOffset(0, None, WALL_CLOCK)


def test_a_clock_that_is_shifted_moves_the_offset_by_as_much(tmp_path: Path) -> None:
    job = Job(steps=100)
    first, second = job.write(tmp_path / "0.profd", 0), job.write(tmp_path / "1.profd", 1)
    before = offset(first, second)
    shift_clock(second, AHEAD_NS)

    assert offset(first, second).offset_ns == pytest.approx(before.offset_ns + AHEAD_NS, abs=MS)


SHIFT_NS = 1_234_567_890


def moments(
    chance: random.Random, count: int = 300, step_ms: float = 90, jitter_ms: float = 20
) -> list[float]:
    at_ms, found = 1e6, []
    for _ in range(count):
        at_ms += step_ms + chance.gauss(0, jitter_ms)
        found.append(at_ms)
    return found


def seen(
    chance: random.Random, truth: list[float], ahead_ns: int = 0, known: float = 1.0
) -> list[int]:
    """Return what one side saw of the moments: some of them, to within the distance of two samples."""
    return sorted(
        int((at + chance.uniform(-5, 5)) * MS) + ahead_ns for at in truth if chance.random() < known
    )


def test_the_offset_is_found_within_its_error_95_times_in_100() -> None:
    chance, held, runs = random.Random(1), 0, 60
    guess = Guess(SHIFT_NS + 20 * MS, 60 * MS)
    for _ in range(runs):
        truth = moments(chance)
        found = there(align(seen(chance, truth), seen(chance, truth, SHIFT_NS, 0.4), guess))
        assert abs(found.offset_ns - SHIFT_NS) < 3 * MS
        assert found.low_ns <= found.offset_ns <= found.high_ns
        held += found.low_ns <= SHIFT_NS <= found.high_ns

    assert held >= 0.9 * runs


def test_swapping_the_two_clocks_only_changes_the_sign() -> None:
    chance = random.Random(2)
    truth = moments(chance)
    many, few = seen(chance, truth), seen(chance, truth, SHIFT_NS, 0.3)
    one = there(align(many, few, Guess(SHIFT_NS, 60 * MS)))
    other = there(align(few, many, Guess(-SHIFT_NS, 60 * MS)))
    assert one.offset_ns == -other.offset_ns
    assert (one.low_ns, one.high_ns) == (-other.high_ns, -other.low_ns)


def test_uneven_steps_align_within_a_wide_guess_and_even_steps_do_not() -> None:
    chance = random.Random(3)
    uneven, even = moments(chance), moments(chance, jitter_ms=0.2)
    wide = Guess(SHIFT_NS + 400 * MS, 1000 * MS)
    found = there(align(seen(chance, uneven), seen(chance, uneven, SHIFT_NS), wide))
    assert abs(found.offset_ns - SHIFT_NS) < 3 * MS
    assert align(seen(chance, even), seen(chance, even, SHIFT_NS), wide) is None


def test_even_steps_are_matched_where_the_guess_tells_them_apart_and_too_few_say_nothing() -> None:
    chance = random.Random(4)
    even = moments(chance, jitter_ms=0.2)
    found = there(
        align(seen(chance, even), seen(chance, even, SHIFT_NS), Guess(SHIFT_NS + 25 * MS, 40 * MS))
    )
    assert abs(found.offset_ns - SHIFT_NS) < 3 * MS
    chance = random.Random(5)
    truth = moments(chance)
    few = seen(chance, truth)[: FEWEST_MATCHED - 1]

    assert align(seen(chance, truth), few, Guess(0, 60 * MS)) is None
    assert align(seen(chance, truth), seen(chance, moments(chance)), Guess(0, 1000 * MS)) is None
