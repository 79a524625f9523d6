from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import BUSY_WORKER, HEALTHY, Series, cores, diagnose, write_case
from support.synthetic import MAIN, worker

from profd.daemon.findings.cpu import cpu_limit, oversubscription
from profd.daemon.findings.finding import CRITICAL, WARNING
from profd.daemon.findings.memory import memory_growth, memory_limit, swapping

GIB = 2**30


def host(name: str, *values: float) -> Series:
    return Series(name, *values, identity=None)


def crowd(*, pressure: float, used: float, threads: float = 32) -> list[Series]:
    """Return the series of two full cores."""
    return [
        *cores(2),
        host("host_cpu_share", 0.95),
        host("host_cpu_pressure_share", pressure),
        Series("cpu_cores", used),
        Series("threads", threads),
    ]


def test_more_threads_than_cores_are_found_where_they_wait_for_them(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, series=crowd(pressure=0.6, used=1.8))
    found = diagnose(path, oversubscription)

    assert found is not None
    assert found.severity == WARNING
    assert "32 threads of the training share 2 cores: for 60 % of the time" in found.title


@pytest.mark.parametrize(
    "series",
    [crowd(pressure=0.2, used=1.8), crowd(pressure=0.6, used=0.5), crowd(pressure=0.6, used=1.8, threads=4)],
    ids=["no thread waits", "others fill the machine", "few threads"],
)
def test_a_full_machine_is_not_oversubscribed(tmp_path: Path, series: list[Series]) -> None:
    assert diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=series), oversubscription) is None


def memory(slope: float) -> list[Series]:
    """Return the series of a process that grows by so many bytes a second, on a machine with 16 GiB."""
    return [
        Series("rss_bytes", *(GIB + slope * second for second in range(60)), identity=MAIN),
        host("host_memory_total_bytes", 16 * GIB),
        host("host_memory_used_bytes", 4 * GIB),
    ]


def test_growing_memory_is_grave_where_it_is_full_soon(tmp_path: Path) -> None:
    soon = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=memory(20e6), seconds=60), memory_growth)
    late = diagnose(write_case(tmp_path / "b.profd", HEALTHY, series=memory(2e6), seconds=60), memory_growth)

    assert soon is not None
    assert late is not None
    assert (soon.severity, late.severity) == (CRITICAL, WARNING)
    assert soon.title == "memory grows: main 4242 takes 20 MB more a second: full in 10 min 44 s"
    measure = soon.evidence.measures[0]
    assert measure.low is not None
    assert measure.high is not None
    assert measure.low <= 20e6 <= measure.high


def test_memory_that_stands_still_is_no_finding(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", HEALTHY, series=memory(0.0), seconds=60)

    assert diagnose(path, memory_growth) is None


def test_memory_that_is_nearly_used_up_is_told(tmp_path: Path) -> None:
    def used(share: float) -> list[Series]:
        total = host("host_memory_total_bytes", 16 * GIB)
        return [Series("rss_bytes", GIB), total, host("host_memory_used_bytes", share * 16 * GIB)]

    found = [
        diagnose(write_case(tmp_path / f"{share}.profd", HEALTHY, series=used(share)), memory_limit)
        for share in (0.5, 0.93, 0.98)
    ]

    assert [one.severity if one else None for one in found] == [None, WARNING, CRITICAL]


def test_a_limit_on_cpu_time_is_found_by_the_periods_that_it_cut_short(tmp_path: Path) -> None:
    limit = Series("cgroup_cpu_limit_cores", 1.5, device="/docker/a")
    path = write_case(tmp_path / "a.profd", HEALTHY, series=[host("cgroup_cpu_throttled_share", 0.5, 0.3), limit])
    found = diagnose(path, cpu_limit)
    rare = write_case(tmp_path / "b.profd", HEALTHY, series=[host("cgroup_cpu_throttled_share", 0.01), limit])

    assert found is not None
    assert "limit of 1.5 cores stopped the training in 31 % of its periods" in found.title
    assert diagnose(rare, cpu_limit) is None


def test_swapping_is_pages_on_disk_that_are_waited_for(tmp_path: Path) -> None:
    def memory(faults: float, swapped: float) -> list[Series]:
        return [Series("major_faults_per_s", faults), Series("swap_bytes", swapped)]

    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, series=memory(300, 2e9)), swapping)

    assert found is not None
    assert found.title == "swapping: main 4242 has 2.0 GB on disk and waits for 300 pages a second"
    # Files that are read for the first time, and pages that nobody asks for.
    for number, series in enumerate([memory(300, 0), memory(0, 2e9)]):
        path = write_case(tmp_path / f"{number}.profd", HEALTHY, series=series)
        assert diagnose(path, swapping) is None


def test_threads_of_workers_crowd_the_machine_too(tmp_path: Path) -> None:
    series = [
        *crowd(pressure=0.6, used=0.5, threads=4),
        *(Series("threads", 8, identity=worker(number)) for number in (1, 2)),
        *(Series("cpu_cores", 0.6, identity=worker(number)) for number in (1, 2)),
    ]
    workers = dict.fromkeys((1, 2), BUSY_WORKER)
    found = diagnose(write_case(tmp_path / "a.profd", HEALTHY, workers=workers, series=series), oversubscription)

    assert found is not None
    assert "20 threads of the training share 2 cores" in found.title
