from __future__ import annotations

import pytest
from support.findingruns import (
    BUSY_WORKER,
    IDLE_WORKER,
    LOAD_IN_PROCESS,
    Case,
    Series,
    at_most_without,
    step,
)
from support.present import there
from support.synthetic import MAIN_TID
from support.training_stacks import DATA_WAIT

from profd.daemon.findings.finding import CRITICAL, INFO
from profd.daemon.findings.loading import idle_workers, load_in_process, saturated_workers
from profd.daemon.units import times

LOADING, WAITING = step((LOAD_IN_PROCESS, 200)), step((DATA_WAIT, 200))


def company(*, on_cpu: float, pressure: float) -> list[Series]:
    """Return how much of a core the main thread has, and for what part of the time anybody waits
    for one.
    """
    return [
        Series("cpu_cores", on_cpu, tid=MAIN_TID),
        Series("host_cpu_pressure_share", pressure, identity=None),
    ]


def test_cores_that_other_programs_have_come_free_by_no_fix(case: Case) -> None:
    for whole, slower in ((0.8, 1.0), (0.9, 1.125), (1.8, 1.25)):
        series = [*company(on_cpu=0.8, pressure=0.9), Series("cpu_cores", whole)]
        found = case.finding(load_in_process, LOADING, series=series)
        assert found.gain_bound == pytest.approx(plain(case) * slower, rel=0.01)
        assert ("on crowded cores" in found.title) == (slower > 1)


def plain(case: Case) -> float:
    """Return the bound of the same steps on cores of their own."""
    return there(case.finding(load_in_process, LOADING).gain_bound)


@pytest.mark.parametrize(
    ("series", "slower"),
    [
        (company(on_cpu=1.0, pressure=0.9), 1.0),
        (company(on_cpu=0.8, pressure=0.9), 1.25),
        (company(on_cpu=0.8, pressure=0.1), 1 / 0.9),
        (company(on_cpu=0.8, pressure=0.0), 1.0),
        ([*company(on_cpu=0.8, pressure=0.9), Series("main_thread_core_wait_share", 0.1)], 1 / 0.9),
    ],
    ids=[
        "has its core",
        "waits for it",
        "waits for something else too",
        "waits for something else",
        "by its own wait",
    ],
)
def test_what_is_left_may_get_faster_by_what_cores_are_lacking(
    case: Case, series: list[Series], slower: float
) -> None:
    found = case.finding(load_in_process, LOADING, series=series)
    assert found.gain_bound == pytest.approx(plain(case) * slower, rel=0.01)


def test_a_bound_says_that_cores_are_crowded(case: Case) -> None:
    spans = step((LOAD_IN_PROCESS, 100))
    alone = there(case.finding(load_in_process, spans).gain_bound)
    found = case.finding(load_in_process, spans, series=company(on_cpu=0.3, pressure=0.9))
    # What is left may be shorter by half as much again, and no more by the fix.
    assert found.gain_bound == pytest.approx(alone * 1.5, rel=0.01)
    bound = times(there(found.gain_bound))
    assert found.title.endswith(
        f"loading it in workers speeds steps up by at most {bound} on crowded cores"
    )


def test_waiting_for_data_is_no_want_of_cores(case: Case) -> None:
    # Without a core for as long as it waits, and with one for all of its work.
    series = company(on_cpu=0.6, pressure=0.9)
    found = case.finding(saturated_workers, WAITING, workers={1: BUSY_WORKER}, series=series)
    assert found.gain_bound == pytest.approx(at_most_without(0.4), rel=0.05)


def test_a_wait_beside_idle_workers_is_no_warning_where_want_of_cores_explains_it(
    case: Case,
) -> None:
    # The main thread works for 60 % of the time, and lacks a core for 40 or 10 %.
    wanting, having = (company(on_cpu=on_cpu, pressure=0.9) for on_cpu in (0.2, 0.5))
    for series, severity in ((wanting, INFO), (having, CRITICAL)):
        workers = {1: IDLE_WORKER}
        assert case.severity(idle_workers, WAITING, workers=workers, series=series) == severity
