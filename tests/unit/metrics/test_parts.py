"""Findings among the metrics: those of the run file, as they come and go."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support import gpurun
from support.gpurun import OTHER_RANK, SECONDS, busy, waits, write_gpu_run
from support.metricvalues import put, series, value, watch
from support.present import there
from support.synthetic import MAIN, live_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics import catalog
from profd.daemon.metrics.catalog import Sample
from profd.daemon.metrics.look import Integral
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken, Found, Point, PointsTaken
from profd.daemon.store.rows import PointRow

WAITS = Found("input-bound-saturated", "critical", "input-bound: waits 61 %", "{}")
GROWS = Found("memory-growth", "warning", "memory grows: 1 MB/s", "{}")


def test_a_finding_has_a_value_at_once_and_zeros_once_it_is_gone(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=3) as run:

        def find(second: int, *found: Found) -> None:
            at_ns = run.started_ns + second * SECOND_NS
            put(run, FindingsTaken(at_ns, found), at_ns)

        def findings(samples: list[Sample]) -> set[tuple[str, tuple[str, ...]]]:
            return {one for one in series(samples) if "finding" in one[0]}

        watched = watch(run.path)
        before = watched.take()  # nothing was looked for
        assert value(before, catalog.FINDINGS, "critical") == 0
        assert math.isnan(value(before, catalog.FINDINGS_LOOKED))
        find(10, WAITS, GROWS)
        found = watched.take()
        assert [value(found, catalog.FINDINGS, one) for one in ("info", "warning", "critical")] == [
            0,
            1,
            1,
        ]
        assert value(found, catalog.FINDING, WAITS.rule, "critical") == 1
        assert value(found, catalog.FINDINGS_LOOKED) == pytest.approx(
            run.started_ns / SECOND_NS + 10
        )
        find(20, GROWS)
        find(200)
        gone = watched.take()
        assert findings(found) <= findings(gone)
        for samples in (
            gone,
            watch(run.path).take(),
        ):  # an exporter that is started late knows it, too
            assert value(samples, catalog.FINDING, WAITS.rule, "critical") == 0
            assert value(samples, catalog.FINDINGS, "critical") == 0


DEVICES = {"gpu0": waits, "gpu1": busy}
HOLDERS = {MAIN: ("gpu0",), OTHER_RANK: ("gpu1",)}


@pytest.mark.parametrize("seconds", [SECONDS, 360])
def test_idle_seconds_are_those_of_the_summary_by_rank_and_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(gpurun, "SECONDS", seconds)
    path = write_gpu_run(tmp_path / "a.profd", DEVICES, HOLDERS)
    with RunReader(path) as reader:
        idle = there(summarize(reader).gpu_idle)
    watched = watch(path)
    for samples in (watched.take(), watched.take()):  # what was counted is not counted again
        assert value(samples, catalog.GPU_IDLE_SECONDS, "0", "data wait") == pytest.approx(
            seconds / 2, abs=0.2
        )
        assert value(samples, catalog.GPU_IDLE_SECONDS, "1", "data wait") == pytest.approx(
            seconds / 10, abs=0.1
        )
        idle_s = sum(
            sample.value for sample in samples if sample.metric is catalog.GPU_IDLE_SECONDS
        )
        assert idle_s == pytest.approx(idle.share * idle.known_s, rel=0.01)
    # Utilization is that of the last seconds, and added up.
    assert value(samples, catalog.GPU_UTILIZATION, "1") == pytest.approx(0.8)
    assert value(samples, catalog.GPU_UTILIZATION, "0") == pytest.approx(0.45, abs=0.02)
    assert value(samples, catalog.GPU_BUSY_SECONDS, "1") == pytest.approx(0.8 * seconds)


def test_memory_of_a_gpu_and_of_the_ranks_on_it_and_nothing_before_there_is_one(
    tmp_path: Path,
) -> None:
    with live_run(tmp_path / "a.profd", seconds=2) as run:
        assert [name for name, _ in series(watch(run.path).take()) if "gpu" in name] == []
        points = [
            Point("gpu_utilization_share", 0.5, device="gpu0-mig1"),
            Point("gpu_memory_used_bytes", 3e9, device="gpu0-mig1"),
            Point("gpu_memory_total_bytes", 8e9, device="gpu0-mig1"),
            Point("gpu_process_memory_bytes", 2e9, MAIN, device="gpu0-mig1"),
        ]
        put(
            run,
            PointsTaken(run.started_ns + 3 * SECOND_NS, tuple(points)),
            run.started_ns + 3 * SECOND_NS,
        )
        samples = watch(run.path).take()
    assert value(samples, catalog.GPU_MEMORY_USED, "0-mig1") == 3e9
    assert value(samples, catalog.GPU_MEMORY_TOTAL, "0-mig1") == 8e9
    assert value(samples, catalog.PROCESS_GPU_MEMORY, "", "main") == 2e9


def points(*readings: tuple[float, float]) -> list[PointRow]:
    return [PointRow(round(at_s * SECOND_NS), value) for at_s, value in readings]


def test_each_value_counts_for_as_long_as_it_holds() -> None:
    integral = Integral(0)
    integral.add(points((1, 4.0)))
    integral.add(points((2, 1.0), (4, 3.0)))
    assert (integral.newest_ns, integral.total_s) == (4 * SECOND_NS, 4.0 + 1.0 + 2 * 3.0)
    later = Integral(10 * SECOND_NS)  # what held before it began is left out
    later.add(points((10.5, 1.0), (11.5, 1.0)))
    assert later.total_s == 1.5


def test_a_gap_counts_as_three_distances_and_the_mean_is_that_of_the_last_ten_seconds() -> None:
    integral = Integral(0)
    integral.add(points(*((float(second), 1.0) for second in range(1, 11)), (111, 1.0)))
    assert integral.total_s == 10 + 3
    assert [integral.mean(at_s * SECOND_NS) for at_s in (112, 200)] == [1.0, None]
    integral = Integral(0)
    integral.add(points((4, 0.0), (8, 1.0), (12, 0.5)))
    # Of the value that holds from 4 to 8 all counts, of the one before it only the part from 2 on.
    assert integral.mean(12 * SECOND_NS) == pytest.approx((2 * 0.0 + 4 * 1.0 + 4 * 0.5) / 10)
