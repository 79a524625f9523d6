from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import (
    BUSY_WORKER,
    HEALTHY,
    IDLE_WORKER,
    IMPORT,
    LOAD_IN_PROCESS,
    Series,
    at_most_without,
    cores,
    diagnose,
    step,
    write_case,
)
from support.synthetic import MAIN_TID, worker
from support.training_stacks import DATA_WAIT

from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.loading import idle_workers, load_in_process, saturated_workers
from profd.daemon.store.records import Frame

WAITING = step((DATA_WAIT, 250))


def test_loading_between_steps_is_found_with_its_line_share_and_bound(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 200))), load_in_process)

    assert found is not None
    measure = found.evidence.measures[0]
    assert measure.value == pytest.approx(0.4, abs=0.01)
    assert measure.samples == pytest.approx(1200, abs=30)
    assert found.severity == CRITICAL
    assert measure.low is not None
    assert measure.high is not None
    assert measure.low < 0.4 < measure.high
    # The bound is that of the largest share that there may be, and so no less than that of the share itself.
    assert found.gain_bound == pytest.approx(at_most_without(measure.high))
    assert found.evidence.line is not None
    assert (found.evidence.line.module_path, found.evidence.line.line) == ("train.py", 58)
    assert found.title.startswith("input-bound: the main thread loads data 40 % of the time (train.py:58)")
    assert found.evidence.selection.phase == "data load in process"


@pytest.mark.parametrize(
    ("lost_ms", "severity"), [(10, None), (40, INFO), (90, WARNING), (230, CRITICAL)], ids=lambda value: str(value)
)
def test_severity_goes_by_what_is_sure(tmp_path: Path, lost_ms: int, severity: str | None) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, lost_ms))), load_in_process)

    assert (found.severity if found else None) == severity


def test_what_may_be_less_is_not_warned_of(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 54)), seconds=10), load_in_process)

    assert found is not None
    assert found.evidence.measures[0].value > 0.1
    assert found.severity == INFO


def test_startup_is_no_part_of_the_step(tmp_path: Path) -> None:
    steps = [((IMPORT, 500),)] * 20 + [step((LOAD_IN_PROCESS, 200))] * 20
    found = diagnose(write_case(tmp_path / "a.profd", *steps, seconds=40), load_in_process)

    assert found is not None
    assert found.evidence.measures[0].value == pytest.approx(0.4, abs=0.01)


def test_few_samples_say_nothing(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 200)), seconds=1)

    assert diagnose(path, load_in_process) is None


def test_bound_is_no_more_than_the_cores_allow(tmp_path: Path) -> None:
    busy = Series("cpu_cores", 1.0, tid=MAIN_TID)
    path = write_case(tmp_path / "a.profd", step((LOAD_IN_PROCESS, 400)), series=[busy, *cores(2)])
    found = diagnose(path, load_in_process)

    assert found is not None
    assert found.gain_bound == pytest.approx(2.0, abs=0.02)
    assert "num_workers=1 " in found.remedy


def test_saturated_workers_tell_how_many_would_do(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: BUSY_WORKER, 2: BUSY_WORKER})
    found = diagnose(path, saturated_workers)

    assert found is not None
    # Two workers that are busy all the time, for steps that would take half the time.
    assert "both workers are 100 % busy: adding 2 speeds steps up by at most 2.3" in found.title
    assert "num_workers=4 " in found.remedy
    assert "train.py:58" in found.remedy
    assert "(augment.py:12)" in found.cause
    assert diagnose(path, idle_workers) is None
    assert diagnose(path, load_in_process) is None


def test_more_workers_are_not_advised_where_no_core_is_left(tmp_path: Path) -> None:
    busy = [Series("cpu_cores", 0.5, tid=MAIN_TID)]
    busy += [Series("cpu_cores", 0.98, identity=worker(number)) for number in (1, 2)]
    path = write_case(
        tmp_path / "a.profd", WAITING, workers={1: BUSY_WORKER, 2: BUSY_WORKER}, series=[*busy, *cores(2)]
    )
    found = diagnose(path, saturated_workers)

    assert found is not None
    assert "no core is left for more" in found.title
    assert "num_workers" not in found.remedy


def test_workers_that_wait_for_storage_are_told_from_those_that_compute(tmp_path: Path) -> None:
    series = [Series("cpu_cores", 0.05, identity=worker(1))]
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: BUSY_WORKER}, series=series)
    found = diagnose(path, saturated_workers)

    assert found is not None
    assert "storage" in found.cause


def test_a_wait_beside_idle_workers_is_not_for_want_of_workers(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: IDLE_WORKER, 2: IDLE_WORKER})
    found = diagnose(path, idle_workers)

    assert found is not None
    assert "its workers are 20 % busy" in found.title
    assert "prefetch_factor" in found.remedy
    assert diagnose(path, saturated_workers) is None


def test_workers_started_anew_each_epoch_should_persist(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: IDLE_WORKER}, generations=6)
    found = diagnose(path, idle_workers)

    assert found is not None
    assert "persistent_workers=True" in found.remedy


def test_batches_that_are_slow_to_take_over_are_no_matter_of_prefetching(tmp_path: Path) -> None:
    # The same wait, but the main thread is busy with a batch that it has.
    rebuild = (*DATA_WAIT[:-2], Frame("rebuild_storage_fd", DATA_WAIT[-1].file, 9))
    path = write_case(tmp_path / "a.profd", step((rebuild, 250)), workers={1: IDLE_WORKER})
    found = diagnose(path, idle_workers)

    assert found is not None
    assert "smaller types" in found.remedy


def test_a_healthy_run_is_not_input_bound(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, workers={1: BUSY_WORKER, 2: BUSY_WORKER})

    for rule in (load_in_process, saturated_workers, idle_workers):
        assert diagnose(path, rule) is None


def test_workers_that_may_be_saturated_are_not_called_idle(tmp_path: Path) -> None:
    at_the_limit = ((BUSY_WORKER[0][0], 400), (IDLE_WORKER[1][0], 100))
    path = write_case(tmp_path / "a.profd", WAITING, workers={1: at_the_limit})

    assert diagnose(path, idle_workers) is None
