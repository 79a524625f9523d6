"""Which rank is late, and which only waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.findingruns import Case
from support.jobruns import FORWARD, LOAD, Rank, gpu_seen, identity_of, write_job
from support.present import there
from support.synthetic import COMMAND, STARTED_NS, recording
from support.training_stacks import BACKWARD, CONV, DATA_WAIT, TRAIN, WORKER_STEP

from profd.daemon.analyze.ranks import OwnWork
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.finding import CRITICAL, WARNING
from profd.daemon.findings.ranks import collectives, straggler, take_waiting
from profd.daemon.findings.rule import Rule
from profd.daemon.findings.shares import Share
from profd.daemon.store import records
from profd.daemon.store.records import Frame, Identity


@pytest.fixture
def job(tmp_path: Path) -> Case:
    return Case(tmp_path, write_job)


USUAL = Rank((LOAD, 100), (FORWARD, 100))
SLOW_DATA = Rank((LOAD, 300), (FORWARD, 100))


def test_the_rank_that_loads_longer_is_named_with_its_function_and_bound(job: Case) -> None:
    found = job.finding(straggler, USUAL, USUAL, SLOW_DATA, USUAL)
    surplus = found.evidence.measures[0]
    assert surplus.value == pytest.approx(0.4, abs=0.01)
    assert found.severity == CRITICAL
    assert found.title.startswith(
        "straggler: rank 2 makes the others wait 40 % of the time, in Photos.__getitem__ (augm"
    )
    high, line = there(surplus.high), there(found.evidence.line)
    assert found.gain_bound == pytest.approx(1 / (1 - high))
    assert 0.4 < high < 0.44
    assert (line.function, line.line) == ("Photos.__getitem__", 33)
    assert (found.evidence.selection.rank, found.evidence.selection.phase) == (
        2,
        "data load in process",
    )


def test_it_is_said_where_the_late_rank_computes_and_where_it_waits(job: Case) -> None:
    waits = Rank((LOAD, 300), (FORWARD, 100), cores=0.2)
    computes = Rank((LOAD, 300), (FORWARD, 100), cores=0.6)
    of_disk, of_cpu = (job.finding(straggler, USUAL, USUAL, late) for late in (waits, computes))
    assert "it waits for storage" in of_disk.cause
    assert "it waits for storage" not in of_cpu.cause
    # Ranks that wait by running are not blamed for it.
    running, late = (
        Rank((LOAD, 100), (FORWARD, 100), cores=1.0),
        Rank((LOAD, 300), (FORWARD, 100), cores=0.3),
    )
    assert "rank 1 makes the others wait" in job.title(straggler, running, late)
    # It may compute longer in backward, too.
    assert of_cpu.gain_bound == pytest.approx(1 / 0.4, rel=0.02)
    assert of_disk.gain_bound == pytest.approx(1 / 0.6, rel=0.06)


def test_more_work_in_backward_shows_as_cpu_time(job: Case) -> None:
    heavy = Rank((LOAD, 100), (FORWARD, 100), cores=0.7)
    found = job.finding(straggler, USUAL, heavy, USUAL)
    said = (
        "straggler: rank 1 makes the others wait at least 50 % of the time, in train_epoch "
        "(train.py:63)"
    )
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
    job: Case, clock_hz: float, said: str
) -> None:
    usual = Rank((LOAD, 100), (FORWARD, 100), cores=1.0, active=WAITS)
    slow = Rank((LOAD, 100), (FORWARD, 100), cores=1.0, active=COMPUTES, clock_hz=clock_hz)
    found = job.finding(straggler, usual, slow, usual, more=[gpu_seen(rank) for rank in range(3)])
    assert found.title.startswith("straggler: rank 1 makes the others wait 40 % of the time")
    assert said in found.cause
    assert (
        job.found(straggler, usual, usual, usual, more=[gpu_seen(rank) for rank in range(3)])
        is None
    )
    # CPU time says nothing where a GPU keeps the waiting busy.
    busy = Rank((LOAD, 100), (FORWARD, 100), cores=0.9)
    assert job.found(straggler, USUAL, busy, USUAL, more=[gpu_seen(0)]) is None


@pytest.mark.parametrize(
    ("longer_ms", "severity"), [(30, None), (45, None), (75, WARNING), (200, CRITICAL)], ids=str
)
def test_less_than_a_tenth_of_a_step_is_no_straggler(
    job: Case, longer_ms: int, severity: str | None
) -> None:
    assert (
        job.severity(straggler, USUAL, Rank((LOAD, 100 + longer_ms), (FORWARD, 100)), USUAL)
        == severity
    )


def test_all_that_are_late_are_named_the_latest_first(job: Case) -> None:
    later = Rank((LOAD, 340), (FORWARD, 100))
    found = job.finding(straggler, USUAL, SLOW_DATA, USUAL, later, USUAL)
    assert "rank 3 makes the others wait" in found.title
    assert found.cause.endswith("Rank 1 is late too.")


def test_a_rank_that_waits_for_its_workers_is_late_by_what_these_do(job: Case) -> None:
    usual, late = Rank((DATA_WAIT, 20), (FORWARD, 100)), Rank((DATA_WAIT, 240), (FORWARD, 100))
    worker = Identity(7100, 1100)
    more: list[records.Record] = [
        records.ProcessSeen(worker, identity_of(1), COMMAND, "worker", 1, 1, "3.11.7", STARTED_NS),
        *(
            recording(
                worker,
                STARTED_NS + second * SECOND_NS,
                [(worker.pid, "MainThread", True, (*WORKER_STEP,) * 2)],
            )
            for second in range(30)
        ),
    ]
    found = job.finding(straggler, usual, late, usual, more=more)
    assert there(found.evidence.line).module_path == "augment.py"
    assert found.evidence.selection.phase == "data wait"


def test_python_that_backward_calls_is_work_of_the_rank(job: Case) -> None:
    hook = (
        *BACKWARD,
        Frame(
            "BackwardCFunction.apply",
            "/usr/lib/python3/site-packages/torch/autograd/function.py",
            311,
        ),
        Frame("Quantize.backward", TRAIN, 31),
    )
    late = Rank((LOAD, 100), (FORWARD, 100), (hook, 200))
    assert "in Quantize.backward (train.py:31)" in job.title(straggler, USUAL, late, USUAL)


def test_waits_without_a_straggler_are_those_of_the_exchange(job: Case) -> None:
    found = job.finding(collectives, USUAL, USUAL, USUAL)
    # Of the three fifths in backward one might be CPU time.
    assert found.evidence.measures[0].value == pytest.approx(0.4, abs=0.01)
    assert found.severity == WARNING
    assert found.gain_bound == pytest.approx(1 / (1 - 0.6), rel=0.02)
    assert "all ranks wait 40 % of the time" in found.title
    assert job.found(straggler, USUAL, USUAL, USUAL) is None


BUSY = Rank((LOAD, 20), (FORWARD, 200), cores=0.95)
ALONE, LONGER = Rank((LOAD, 100), (CONV, 100)), Rank((LOAD, 300), (CONV, 100))


@pytest.mark.parametrize(
    ("rules", "ranks", "more"),
    [
        ((collectives,), (USUAL, SLOW_DATA, USUAL), {}),
        ((collectives,), (USUAL, USUAL), {"pressure": 0.5}),
        ((collectives, straggler), (BUSY,) * 4, {}),
        ((collectives, straggler), (ALONE, LONGER), {}),
        ((collectives, straggler), (USUAL, SLOW_DATA), {"numbered": False}),
    ],
    ids=[
        "one is late",
        "cores are lacking",
        "they compute most of the time",
        "they exchange nothing",
        "no numbers",
    ],
)
def test_ranks_do_not_wait_for_one_another(
    job: Case, rules: tuple[Rule, ...], ranks: tuple[Rank, ...], more: dict[str, Any]
) -> None:
    assert [job.found(rule, *ranks, **more) for rule in rules] == [None] * len(rules)


def effort(own: tuple[float | None, ...], cores: tuple[float | None, ...]) -> OwnWork:
    """Return what a rank did in each part of a range: its own work, and the CPU time that it used."""
    return OwnWork(0, frozenset({1}), 500, own, cores, {}, {})


def bounds_of(waiting: Share | None) -> tuple[float, float, float]:
    return there(waiting).value, there(waiting).low, there(waiting).high


def test_cpu_time_bounds_the_waiting_from_above_and_sleep_may_want_a_core() -> None:
    # 1 - 0.5 - 0.3 in each part; it is at most the half that is not its own work.
    steady = [effort((0.5, 0.5), (0.3, 0.3))] * 2
    assert bounds_of(take_waiting(steady, 0.0)) == pytest.approx((0.2, 0.2, 0.5))
    steady = [effort((0.5, 0.5), (0.3, 0.3))]
    assert bounds_of(take_waiting(steady, 0.05)) == pytest.approx((0.2, 0.15, 0.5))
    assert bounds_of(take_waiting(steady, 0.9)) == pytest.approx((0.2, 0.0, 0.5))
    # The rank computes four fifths of the time: it waits for one fifth at most, however little of
    # that is known work.
    assert bounds_of(take_waiting([effort((0.1, 0.1), (0.8, 0.8))], 0.0)) == pytest.approx(
        (0.1, 0.1, 0.2)
    )
    # Several threads of it use more than a core.
    assert bounds_of(take_waiting([effort((0.1, 0.1), (2.0, 2.0))], 0.0)) == (0.0, 0.0, 0.0)


def test_parts_that_differ_widen_the_interval_and_fewer_than_two_tell_nothing() -> None:
    # Means 0.2 of 0.1 and 0.3: their standard error is 0.1.
    value, low, high = bounds_of(take_waiting([effort((0.5, 0.5), (0.4, 0.2))], 0.0))
    assert (value, low, high) == pytest.approx((0.2, 0.2 - 0.196, 0.5 + 0.196), abs=1e-3)
    assert take_waiting([], 0.0) is None
    assert take_waiting([effort((0.5, None, 0.5), (0.3, 0.3, None))], 0.0) is None
