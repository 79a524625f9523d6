from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import HEALTHY, Series, at_most_without, diagnose, step, write_case
from support.training_stacks import TRAIN

from profd.daemon.findings.finding import WARNING
from profd.daemon.findings.memory import allocator_churn, garbage_collection
from profd.daemon.store.records import Frame

COLLECT = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90), Frame("train_epoch", TRAIN, 80))


def test_calls_of_the_garbage_collector_are_found_with_their_line(tmp_path: Path) -> None:
    found = diagnose(write_case(tmp_path / "a.profd", step((COLLECT, 150))), garbage_collection)

    assert found is not None
    assert found.severity == WARNING
    assert found.title.startswith("garbage collection: gc.collect() takes 30 % of the time (train.py:80)")
    assert found.gain_bound == pytest.approx(at_most_without(0.3), rel=0.03)
    assert diagnose(write_case(tmp_path / "b.profd", HEALTHY), garbage_collection) is None


def faulting(faults: float, *, system: float, user: float = 0.7) -> list[Series]:
    """Return how many pages a process asks for a second, and its CPU time in the kernel and outside."""
    return [
        Series("minor_faults_per_s", faults),
        Series("cpu_system_cores", system),
        Series("cpu_user_cores", user),
    ]


def test_pages_that_are_taken_anew_are_told_by_their_faults(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, series=faulting(150_000, system=0.3))
    found = diagnose(path, allocator_churn)

    assert found is not None
    assert found.severity == WARNING
    assert "614 MB of memory a second are taken from the kernel anew, for 29 % of the time" in found.title
    assert "MALLOC_TRIM_THRESHOLD_" in found.remedy
    # In a step without the 2 % for which it waits for data, and with what 150,000 faults take outside of the kernel.
    assert found.gain_bound == pytest.approx(at_most_without(0.98 * 0.3 + 0.03), rel=0.01)


@pytest.mark.parametrize(
    "series",
    [faulting(10_000, system=0.04, user=0.06), faulting(30_000, system=0.3), faulting(150_000, system=0.02)],
    ids=["few faults", "too few for that time", "little time"],
)
def test_a_busy_kernel_is_no_churn_by_itself(tmp_path: Path, series: list[Series]) -> None:
    assert diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=series), allocator_churn) is None
