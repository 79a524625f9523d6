"""Which rank is late, and which only waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import diagnose
from support.jobruns import FORWARD, LOAD, Rank, gpu_seen, identity_of, write_job
from support.synthetic import COMMAND, STARTED_NS, recording
from support.training_stacks import BACKWARD, CONV, DATA_WAIT, TRAIN, WORKER_STEP

from profd.daemon.analyze.ranks import OwnWork
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.context import Share
from profd.daemon.findings.finding import CRITICAL, WARNING
from profd.daemon.findings.ranks import collectives, straggler, take_waiting
from profd.daemon.store import records
from profd.daemon.store.records import Frame, Identity

USUAL = Rank((LOAD, 100), (FORWARD, 100))
SLOW_DATA = Rank((LOAD, 300), (FORWARD, 100))


def test_the_rank_that_loads_longer_is_named_with_its_function_and_bound(tmp_path: Path) -> None:
    found = diagnose(write_job(tmp_path / "a.profd", USUAL, USUAL, SLOW_DATA, USUAL), straggler)

    assert found is not None
    surplus = found.evidence.measures[0]
    assert surplus.value == pytest.approx(0.4, abs=0.01)
    assert found.severity == CRITICAL
    assert found.title.startswith(
        "straggler: rank 2 makes the others wait 40 % of the time, in Photos.__getitem__ (augm"
    )
    assert surplus.high is not None
    assert found.gain_bound == pytest.approx(1 / (1 - surplus.high))
    assert 0.4 < surplus.high < 0.44
    assert found.evidence.line is not None
    assert (found.evidence.line.function, found.evidence.line.line) == ("Photos.__getitem__", 33)
    assert (found.evidence.selection.rank, found.evidence.selection.phase) == (2, "data load in process")


def test_it_is_said_where_the_late_rank_computes_and_where_it_waits(tmp_path: Path) -> None:
    waits = Rank((LOAD, 300), (FORWARD, 100), cores=0.2)
    computes = Rank((LOAD, 300), (FORWARD, 100), cores=0.6)
    of_disk = diagnose(write_job(tmp_path / "a.profd", USUAL, USUAL, waits), straggler)
    of_cpu = diagnose(write_job(tmp_path / "b.profd", USUAL, USUAL, computes), straggler)

    assert of_disk is not None
    assert of_cpu is not None
    assert "it waits for storage" in of_disk.cause
    assert "it waits for storage" not in of_cpu.cause
    # It may compute longer in backward, too.
    assert of_cpu.gain_bound == pytest.approx(1 / 0.4, rel=0.02)
    assert of_disk.gain_bound == pytest.approx(1 / 0.6, rel=0.06)


def test_more_work_in_backward_shows_as_cpu_time(tmp_path: Path) -> None:
    heavy = Rank((LOAD, 100), (FORWARD, 100), cores=0.7)
    found = diagnose(write_job(tmp_path / "a.profd", USUAL, heavy, USUAL), straggler)

    assert found is not None
    said = "straggler: rank 1 makes the others wait at least 50 % of the time, in train_epoch (train.py:63)"
    assert found.title.startswith(said)
    # The others load and go forward for two fifths of a step, which nothing shortens.
    assert found.gain_bound == pytest.approx(1 / 0.4, rel=0.02)
    assert "longer batches" in found.remedy


COMPUTES, WAITS = (0.82, 0.86, 0.84), (0.42, 0.44, 0.46)
"""Multiprocessors at work: the kernel that exchanges data, in which the others wait, takes few."""


@pytest.mark.parametrize(
    ("clock_hz", "said"), [(1.98e9, "It is the kernels"), (1.2e9, "clocked 39 % below the others")]
)
def test_on_gpus_the_rank_whose_kernels_take_longer_is_named_and_a_slow_clock(
    tmp_path: Path, clock_hz: float, said: str
) -> None:
    usual = Rank((LOAD, 100), (FORWARD, 100), cores=1.0, active=WAITS)
    slow = Rank((LOAD, 100), (FORWARD, 100), cores=1.0, active=COMPUTES, clock_hz=clock_hz)
    found = diagnose(
        write_job(tmp_path / "a.profd", usual, slow, usual, more=[gpu_seen(rank) for rank in range(3)]), straggler
    )

    assert found is not None
    assert found.title.startswith("straggler: rank 1 makes the others wait 40 % of the time")
    assert said in found.cause
    equal = diagnose(
        write_job(tmp_path / "b.profd", usual, usual, usual, more=[gpu_seen(rank) for rank in range(3)]), straggler
    )
    assert equal is None


def test_counts_of_nccl_stand_beside_the_rank_that_is_late(tmp_path: Path) -> None:
    late = Rank((LOAD, 300), (FORWARD, 100), behind=(1, 0))
    usual = Rank((LOAD, 100), (FORWARD, 100), behind=(0, 0))
    found = diagnose(write_job(tmp_path / "a.profd", usual, usual, late), straggler)

    assert found is not None
    assert "In 1 of 2 looks at NCCL's counts it was behind all others." in found.cause


def test_cpu_time_says_nothing_where_a_gpu_keeps_the_waiting_busy(tmp_path: Path) -> None:
    busy = Rank((LOAD, 100), (FORWARD, 100), cores=0.9)
    device = records.DeviceSeen(STARTED_NS, "gpu0", 0, "H100", "GPU-1")
    path = write_job(tmp_path / "a.profd", USUAL, busy, USUAL, more=[device])

    assert diagnose(path, straggler) is None


def test_ranks_that_wait_by_running_are_not_blamed_for_it(tmp_path: Path) -> None:
    waits = Rank((LOAD, 100), (FORWARD, 100), cores=1.0)
    late = Rank((LOAD, 300), (FORWARD, 100), cores=0.3)
    found = diagnose(write_job(tmp_path / "a.profd", waits, late), straggler)

    assert found is not None
    assert "rank 1 makes the others wait" in found.title


@pytest.mark.parametrize(
    ("longer_ms", "severity"), [(30, None), (45, None), (75, WARNING), (200, CRITICAL)], ids=lambda value: str(value)
)
def test_less_than_a_tenth_of_a_step_is_no_straggler(tmp_path: Path, longer_ms: int, severity: str | None) -> None:
    late = Rank((LOAD, 100 + longer_ms), (FORWARD, 100))
    found = diagnose(write_job(tmp_path / "a.profd", USUAL, late, USUAL), straggler)

    assert (found.severity if found else None) == severity


def test_all_that_are_late_are_named_the_latest_first(tmp_path: Path) -> None:
    later = Rank((LOAD, 340), (FORWARD, 100))
    found = diagnose(write_job(tmp_path / "a.profd", USUAL, SLOW_DATA, USUAL, later, USUAL), straggler)

    assert found is not None
    assert "rank 3 makes the others wait" in found.title
    assert found.cause.endswith("Rank 1 is late too.")


def test_a_rank_that_waits_for_its_workers_is_late_by_what_these_do(tmp_path: Path) -> None:
    usual, late = Rank((DATA_WAIT, 20), (FORWARD, 100)), Rank((DATA_WAIT, 240), (FORWARD, 100))
    worker = Identity(7100, 1100)
    more: list[records.Record] = [
        records.ProcessSeen(worker, identity_of(1), COMMAND, "worker", 1, 1, "3.11.7", STARTED_NS),
        *(
            recording(worker, STARTED_NS + second * SECOND_NS, [(worker.pid, "MainThread", True, (*WORKER_STEP,) * 2)])
            for second in range(30)
        ),
    ]
    found = diagnose(write_job(tmp_path / "a.profd", usual, late, usual, more=more), straggler)

    assert found is not None
    assert found.evidence.line is not None
    assert found.evidence.line.module_path == "augment.py"
    assert found.evidence.selection.phase == "data wait"


def test_processes_that_exchange_nothing_wait_for_nobody(tmp_path: Path) -> None:
    alone, longer = Rank((LOAD, 100), (CONV, 100)), Rank((LOAD, 300), (CONV, 100))
    unrelated = write_job(tmp_path / "a.profd", alone, longer)
    unnumbered = write_job(tmp_path / "b.profd", USUAL, SLOW_DATA, numbered=False)

    for path in (unrelated, unnumbered):
        assert diagnose(path, straggler) is None
        assert diagnose(path, collectives) is None


def test_python_that_backward_calls_is_work_of_the_rank(tmp_path: Path) -> None:
    hook = (
        *BACKWARD,
        Frame("BackwardCFunction.apply", "/usr/lib/python3/site-packages/torch/autograd/function.py", 311),
        Frame("Quantize.backward", TRAIN, 31),
    )
    late = Rank((LOAD, 100), (FORWARD, 100), (hook, 200))
    found = diagnose(write_job(tmp_path / "a.profd", USUAL, late, USUAL), straggler)

    assert found is not None
    assert "in Quantize.backward (train.py:31)" in found.title


def test_waits_without_a_straggler_are_those_of_the_exchange(tmp_path: Path) -> None:
    path = write_job(tmp_path / "a.profd", USUAL, USUAL, USUAL)
    found = diagnose(path, collectives)

    assert found is not None
    # Of the three fifths in backward one might be CPU time.
    assert found.evidence.measures[0].value == pytest.approx(0.4, abs=0.01)
    assert found.severity == WARNING
    assert found.gain_bound == pytest.approx(1 / (1 - 0.6), rel=0.02)
    assert "3 ranks wait 40 % of the time" in found.title
    assert diagnose(path, straggler) is None


def test_waits_for_one_late_rank_are_not_those_of_the_exchange(tmp_path: Path) -> None:
    path = write_job(tmp_path / "a.profd", USUAL, SLOW_DATA, USUAL)

    assert diagnose(path, collectives) is None


def test_ranks_that_lack_cores_may_not_wait_for_each_other(tmp_path: Path) -> None:
    path = write_job(tmp_path / "a.profd", USUAL, USUAL, pressure=0.5)

    assert diagnose(path, collectives) is None


def test_a_job_that_computes_most_of_the_time_is_healthy(tmp_path: Path) -> None:
    busy = Rank((LOAD, 20), (FORWARD, 200), cores=0.95)
    path = write_job(tmp_path / "a.profd", busy, busy, busy, busy)

    assert diagnose(path, collectives) is None
    assert diagnose(path, straggler) is None


def effort(own: tuple[float | None, ...], cores: tuple[float | None, ...]) -> OwnWork:
    """Return what a rank did in each part of a range: its own work, and the CPU time that it used."""
    return OwnWork(0, frozenset({1}), 500, own, cores, {}, {})


def told(waiting: Share | None) -> tuple[float, float, float]:
    assert waiting is not None
    return waiting.value, waiting.low, waiting.high


def test_cpu_time_bounds_the_waiting_from_above_and_sleep_may_want_a_core() -> None:
    # 1 - 0.5 - 0.3 in each part; it is at most the half that is not its own work.
    steady = [effort((0.5, 0.5), (0.3, 0.3))] * 2
    assert told(take_waiting(steady, 0.0)) == pytest.approx((0.2, 0.2, 0.5))
    steady = [effort((0.5, 0.5), (0.3, 0.3))]
    assert told(take_waiting(steady, 0.05)) == pytest.approx((0.2, 0.15, 0.5))
    assert told(take_waiting(steady, 0.9)) == pytest.approx((0.2, 0.0, 0.5))
    # The rank computes four fifths of the time: it waits for one fifth at most, however little of that is known work.
    assert told(take_waiting([effort((0.1, 0.1), (0.8, 0.8))], 0.0)) == pytest.approx((0.1, 0.1, 0.2))
    # Several threads of it use more than a core.
    assert told(take_waiting([effort((0.1, 0.1), (2.0, 2.0))], 0.0)) == (0.0, 0.0, 0.0)


def test_parts_that_differ_widen_the_interval_and_fewer_than_two_tell_nothing() -> None:
    # Means 0.2 of 0.1 and 0.3: their standard error is 0.1.
    value, low, high = told(take_waiting([effort((0.5, 0.5), (0.4, 0.2))], 0.0))
    assert (value, low, high) == pytest.approx((0.2, 0.2 - 0.196, 0.5 + 0.196), abs=1e-3)
    assert take_waiting([], 0.0) is None
    assert take_waiting([effort((0.5, None, 0.5), (0.3, 0.3, None))], 0.0) is None
