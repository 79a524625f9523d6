"""Findings among the metrics: those of the run file, as they come and go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import gpurun
from support.gpurun import OTHER_RANK, SECONDS, busy, waits, write_gpu_run
from support.metricvalues import put, series, value, watch
from support.synthetic import MAIN, LiveRun, live_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics import catalog
from profd.daemon.metrics.catalog import Sample
from profd.daemon.metrics.runs import RunWatch
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken, Found, Point, PointsTaken

WAITS = Found("input-bound-saturated", "critical", "input-bound: waits 61 %", "{}")
GROWS = Found("memory-growth", "warning", "memory grows: 1 MB/s", "{}")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    with live_run(tmp_path / "a.profd", seconds=3) as run:
        yield run


@pytest.fixture
def watched(run: LiveRun) -> RunWatch:
    return watch(run.path)


def find(run: LiveRun, second: int, *found: Found) -> None:
    at_ns = run.started_ns + second * SECOND_NS
    put(run, FindingsTaken(at_ns, found), at_ns)


def findings(samples: list[Sample]) -> set[tuple[str, tuple[str, ...]]]:
    return {one for one in series(samples) if "finding" in one[0]}


def test_before_the_first_look_nothing_is_known(watched: RunWatch) -> None:
    samples = watched.take()
    assert value(samples, catalog.FINDINGS, "critical") == 0
    assert math.isnan(value(samples, catalog.FINDINGS_LOOKED))


def test_what_is_found_is_told_at_once(run: LiveRun, watched: RunWatch) -> None:
    find(run, 10, WAITS, GROWS)
    samples = watched.take()
    assert [value(samples, catalog.FINDINGS, one) for one in ("info", "warning", "critical")] == [0, 1, 1]
    assert value(samples, catalog.FINDING, WAITS.rule, "critical") == 1
    assert value(samples, catalog.FINDINGS_LOOKED) == pytest.approx(run.started_ns / SECOND_NS + 10)


def test_what_is_gone_is_zero_and_stays_a_series(run: LiveRun, watched: RunWatch) -> None:
    find(run, 10, WAITS)
    found = watched.take()
    find(run, 20, GROWS)
    find(run, 200)
    gone = watched.take()
    assert value(gone, catalog.FINDING, WAITS.rule, "critical") == 0
    assert value(gone, catalog.FINDINGS, "critical") == 0
    assert findings(found) <= findings(gone)


def test_an_exporter_that_is_started_late_knows_what_is_gone(run: LiveRun) -> None:
    find(run, 10, WAITS)
    find(run, 20)
    assert value(watch(run.path).take(), catalog.FINDING, WAITS.rule, "critical") == 0


DEVICES = {"gpu0": waits, "gpu1": busy}
HOLDERS = {MAIN: ("gpu0",), OTHER_RANK: ("gpu1",)}


@pytest.mark.parametrize("seconds", [SECONDS, 360])
def test_idle_seconds_are_those_of_the_summary_by_rank_and_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(gpurun, "SECONDS", seconds)
    path = write_gpu_run(tmp_path / "a.profd", DEVICES, HOLDERS)
    with RunReader(path) as reader:
        idle = summarize(reader).gpu_idle
    assert idle is not None

    samples = watch(path).take()

    assert value(samples, catalog.GPU_IDLE_SECONDS, "0", "data wait") == pytest.approx(seconds / 2, abs=0.2)
    assert value(samples, catalog.GPU_IDLE_SECONDS, "1", "data wait") == pytest.approx(seconds / 10, abs=0.1)
    told = sum(sample.value for sample in samples if sample.metric is catalog.GPU_IDLE_SECONDS)
    assert told == pytest.approx(idle.share * idle.known_s, rel=0.01)


def test_sums_that_were_counted_are_not_counted_again(tmp_path: Path) -> None:
    watched = watch(write_gpu_run(tmp_path / "a.profd", DEVICES, HOLDERS))
    first = value(watched.take(), catalog.GPU_IDLE_SECONDS, "0", "data wait")

    assert value(watched.take(), catalog.GPU_IDLE_SECONDS, "0", "data wait") == first


def test_utilization_is_that_of_the_last_seconds_and_added_up(tmp_path: Path) -> None:
    samples = watch(write_gpu_run(tmp_path / "a.profd", DEVICES, HOLDERS)).take()

    assert value(samples, catalog.GPU_UTILIZATION, "1") == pytest.approx(0.8)
    assert value(samples, catalog.GPU_UTILIZATION, "0") == pytest.approx(0.45, abs=0.02)
    assert value(samples, catalog.GPU_BUSY_SECONDS, "1") == pytest.approx(0.8 * SECONDS)


def test_memory_of_a_gpu_and_of_the_ranks_on_it(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=2) as run:
        points = [
            Point("gpu_utilization_share", 0.5, device="gpu0-mig1"),
            Point("gpu_memory_used_bytes", 3e9, device="gpu0-mig1"),
            Point("gpu_memory_total_bytes", 8e9, device="gpu0-mig1"),
            Point("gpu_process_memory_bytes", 2e9, MAIN, device="gpu0-mig1"),
        ]
        put(run, PointsTaken(run.started_ns + 3 * SECOND_NS, tuple(points)), run.started_ns + 3 * SECOND_NS)
        samples = watch(run.path).take()

    assert value(samples, catalog.GPU_MEMORY_USED, "0-mig1") == 3e9
    assert value(samples, catalog.GPU_MEMORY_TOTAL, "0-mig1") == 8e9
    assert value(samples, catalog.PROCESS_GPU_MEMORY, "", "main") == 2e9


def test_without_a_gpu_nothing_is_told_of_one(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=2) as run:
        assert [name for name, _ in series(watch(run.path).take()) if "gpu" in name] == []
