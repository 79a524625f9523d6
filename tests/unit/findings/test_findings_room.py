"""What runs out of room: shared memory, the memory of a GPU, the link to a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.findingruns import BUSY_WORKER, HEALTHY, IDLE_WORKER, Case, Series, gpu, of_gpu
from support.synthetic import worker

from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.gpu import pcie_bound
from profd.daemon.findings.loading import shared_memory
from profd.daemon.findings.memory import copied_pages, gpu_memory_limit

GIB = 2**30


def shm(*used_mb: float) -> list[Series]:
    """Return the series of a container's 64 MB of shared memory."""
    used = Series("shm_used_bytes", *(1e6 * one for one in used_mb), identity=None)
    return [used, Series("shm_total_bytes", 64e6, identity=None)]


@pytest.mark.parametrize(
    ("used_mb", "severity"),
    [((30, 40), None), ((10, 54, 20), WARNING), ((62, 63), CRITICAL)],
    ids=str,
)
def test_shared_memory_that_was_nearly_full_is_a_finding(
    case: Case, used_mb: tuple[float, ...], severity: str | None
) -> None:
    assert (
        case.severity(shared_memory, HEALTHY, workers={1: BUSY_WORKER}, series=shm(*used_mb))
        == severity
    )


def test_shared_memory_is_named_with_its_size_and_only_if_workers_use_it(case: Case) -> None:
    title = case.title(shared_memory, HEALTHY, workers={1: BUSY_WORKER}, series=shm(60))
    assert title == "shared memory nearly full: 94 % of the 64 MB of /dev/shm was in use"
    assert case.found(shared_memory, HEALTHY, series=shm(60)) is None


@pytest.mark.parametrize(("used", "severity"), [(0.9, None), (0.95, INFO), (0.99, WARNING)])
def test_a_gpu_whose_memory_is_full_is_a_finding(
    case: Case, used: float, severity: str | None
) -> None:
    series = [
        of_gpu("gpu_memory_used_bytes", GIB, used * 80 * GIB),
        of_gpu("gpu_memory_total_bytes", 80 * GIB),
    ]
    assert case.severity(gpu_memory_limit, HEALTHY, series=[*series, gpu(0.9)[1]]) == severity
    assert case.found(gpu_memory_limit, HEALTHY, series=series) is None


def test_a_gpu_that_others_have_filled_is_told_so(case: Case) -> None:
    series = [
        of_gpu("gpu_memory_used_bytes", 79 * GIB),
        of_gpu("gpu_memory_total_bytes", 80 * GIB),
        gpu(0.9)[1],
    ]
    assert "99 % full, and this training held 1.0 GB of it" in case.title(
        gpu_memory_limit, HEALTHY, series=series
    )


def link(
    received: float, *, busy: float = 0.4, lanes: float = 4, sent: float = 1e6
) -> list[Series]:
    """Return the series of a GPU on a link of generation 4, which is in generation 1 while it has
    nothing to do.
    """
    return [
        *gpu(busy),
        of_gpu("gpu_pcie_received_bytes_per_s", received),
        of_gpu("gpu_pcie_sent_bytes_per_s", sent),
        of_gpu("gpu_pcie_generation", 1, 4, 1),
        of_gpu("gpu_pcie_lanes", lanes),
    ]


def test_a_link_that_is_full_while_the_gpu_pauses_bounds_the_training(case: Case) -> None:
    found = case.finding(pcie_bound, HEALTHY, series=link(5e9))
    assert found.severity == CRITICAL
    # Four lanes of 1,969 MB/s; copies reach 85 % of that.
    assert (
        found.title == "PCIe-bound: copies to gpu0 take 75 % of its link's capacity: "
        "avoiding them speeds steps up by at most 2.5\N{MULTIPLICATION SIGN}"
    )
    assert "4 lanes carries 5.0 GB a second. The GPU is busy 40 % of the time" in found.cause
    # Steps cannot be shorter than what the GPU computes for.
    assert found.gain_bound == pytest.approx(2.5)
    # What comes back counts as well.
    assert "copies from gpu0 take 75 %" in case.title(
        pcie_bound, HEALTHY, series=link(1e6, sent=5e9)
    )


@pytest.mark.parametrize(
    "series",
    [
        link(5e9, lanes=16),
        link(5e9, busy=0.99),
        link(5e9)[:4],
        [*link(5e9)[:4], of_gpu("gpu_pcie_lanes", 4)],
    ],
    ids=["a wide link", "a busy GPU", "an unknown link", "an unknown generation"],
)
def test_a_link_bounds_only_where_it_is_full_and_waited_for(
    case: Case, series: list[Series]
) -> None:
    assert case.found(pcie_bound, HEALTHY, series=series) is None


SECONDS = 30


def memory_of_worker(
    number: int, own_mb: Sequence[float | None], *resident_mb: float
) -> list[Series]:
    """Return what a worker has for itself, second by second, and what it has in all."""
    own = (None if one is None else 1e6 * one for one in own_mb)
    return [
        Series("uss_bytes", *own, identity=worker(number)),
        Series("rss_bytes", *(1e6 * one for one in resident_mb), identity=worker(number)),
    ]


EVENLY = [20 + 5 * second for second in range(SECONDS)]


def test_what_workers_copy_of_a_dataset_is_found_though_their_resident_memory_is_steady(
    case: Case,
) -> None:
    workers = {1: BUSY_WORKER, 2: IDLE_WORKER}
    series = memory_of_worker(1, EVENLY, 900) + memory_of_worker(2, EVENLY, 900)
    found = case.finding(copied_pages, HEALTHY, workers=workers, series=series)
    assert found.title == (
        "memory copied: workers copy 10 MB a second of the memory that they share with the main"
        " process (augment.py:12)"
    )
    assert "up to 1.5 GB more" in found.cause
    assert (found.severity, found.gain_bound) == (WARNING, None)


def test_two_readings_of_one_worker_tell_what_all_of_them_copy(case: Case) -> None:
    seldom = [*[None] * 10, 20.0, *[None] * 9, 80.0, *[None] * 9]
    once = [*[None] * 12, 20.0, *[None] * 17]
    series = memory_of_worker(1, seldom, 900) + memory_of_worker(2, once, 900)
    workers = {1: BUSY_WORKER, 2: IDLE_WORKER}
    assert "workers copy 12 MB a second" in case.title(
        copied_pages, HEALTHY, workers=workers, series=series
    )


@pytest.mark.parametrize(
    ("own_mb", "resident_mb"),
    [
        (EVENLY, [900 + 5 * second for second in range(SECONDS)]),
        ([20, *[150] * SECONDS], [900]),
        ([20 + 0.1 * second for second in range(SECONDS)], [900]),
        ([100 - second for second in range(SECONDS)], [900]),
        ([300], [900]),
    ],
    ids=["takes new memory", "copies as it starts", "hardly any", "gives back", "had it before"],
)
def test_memory_of_workers_that_is_no_copy_of_a_dataset(
    case: Case, own_mb: Sequence[float], resident_mb: Sequence[float]
) -> None:
    series = memory_of_worker(1, own_mb, *resident_mb)
    assert case.found(copied_pages, HEALTHY, workers={1: BUSY_WORKER}, series=series) is None
