"""How far the clocks of nodes are apart, from their run files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.noderuns import Job
from support.shiftedclocks import shift_clock
from support.training_stacks import BACKWARD, LIBRARY

from profd.daemon.analyze.clocks import COLLECTIVES, FIRST, JOINING, STEPS, WALL_CLOCK, ClockOffset, take_offsets
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

MS = MILLISECOND_NS
AHEAD_NS = 1_700_000_003


def offset(first: Path, second: Path) -> ClockOffset:
    with RunReader(first) as one, RunReader(second) as other:
        agreed, found = take_offsets([one, other])
    assert agreed == ClockOffset(0, 0, FIRST)
    return found


@pytest.mark.parametrize("ahead_ns", [AHEAD_NS, -AHEAD_NS, 0])
def test_even_steps_are_aligned_from_the_moment_at_which_all_joined(ahead_ns: int, tmp_path: Path) -> None:
    job = Job(jitter_ms=0.3)
    found = offset(
        job.write(tmp_path / "0.profd", 0), job.write(tmp_path / "1.profd", 1, own_share=0.9, ahead_ns=ahead_ns)
    )

    assert found.source == COLLECTIVES
    assert abs(found.offset_ns - ahead_ns) < 5 * MS
    assert found.error_ns is not None
    assert abs(found.offset_ns - ahead_ns) < found.error_ns < 12 * MS
    assert found.matched > 100


def test_who_is_sampled_less_often_is_not_taken_to_be_later_and_no_surer_than_samples_are_apart(tmp_path: Path) -> None:
    job = Job(steps=800, jitter_ms=3)
    found = offset(job.write(tmp_path / "0.profd", 0), job.write(tmp_path / "1.profd", 1, own_share=0.6, sample_ms=50))

    # Half of the distance of samples is 5 ms on one side, and 25 ms on the other.
    assert found.source == COLLECTIVES
    assert abs(found.offset_ns) < 8 * MS
    assert found.error_ns is not None
    assert found.error_ns >= 25 * MS


def test_what_some_leave_before_others_come_tells_no_clock(tmp_path: Path) -> None:
    job = Job(jitter_ms=0.3)
    where = "torch/distributed/distributed_c10d.py"
    blocking, one_sided = ((*BACKWARD[:3], Frame(name, LIBRARY + where, 9)) for name in ("all_reduce", "broadcast"))
    files = [job.write(tmp_path / f"{number}.profd", number, wait=blocking) for number in range(2)]
    other = job.write(tmp_path / "2.profd", 2, wait=one_sided)

    assert offset(files[0], files[1]).source == COLLECTIVES
    assert offset(files[0], other).source == JOINING


def test_uneven_steps_are_aligned_by_counters_where_the_start_was_not_seen(tmp_path: Path) -> None:
    job = Job(jitter_ms=25)
    found = offset(
        job.write(tmp_path / "0.profd", 0, joined=False),
        job.write(tmp_path / "1.profd", 1, own_share=0.8, ahead_ns=AHEAD_NS, joined=False),
    )

    assert found.source == COLLECTIVES
    assert abs(found.offset_ns - AHEAD_NS) < 5 * MS


def test_even_steps_whose_start_was_not_seen_are_known_to_some_steps_and_that_is_said(tmp_path: Path) -> None:
    job = Job(jitter_ms=0.3)
    found = offset(
        job.write(tmp_path / "0.profd", 0, joined=False),
        job.write(tmp_path / "1.profd", 1, ahead_ns=AHEAD_NS, joined=False),
    )

    assert found.source == STEPS
    assert found.error_ns is not None
    assert abs(found.offset_ns - AHEAD_NS) < found.error_ns < SECOND_NS / 2


def test_where_nothing_tells_the_wall_clock_is_taken_and_that_is_said(tmp_path: Path) -> None:
    job, other = Job(jitter_ms=0.3), Job(jitter_ms=0.3, seed=2)
    found = offset(
        job.write(tmp_path / "0.profd", 0, joined=False, counted=False),
        other.write(tmp_path / "1.profd", 1, joined=False, counted=False),
    )

    assert found == ClockOffset(0, None, WALL_CLOCK)


def test_a_clock_that_is_shifted_moves_the_offset_by_as_much(tmp_path: Path) -> None:
    job = Job(steps=100)
    first, second = job.write(tmp_path / "0.profd", 0), job.write(tmp_path / "1.profd", 1)
    before = offset(first, second)
    shift_clock(second, AHEAD_NS)

    assert offset(first, second).offset_ns == pytest.approx(before.offset_ns + AHEAD_NS, abs=MS)
