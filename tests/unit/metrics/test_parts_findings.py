"""Findings among the metrics: those of the run file, as they come and go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.metricvalues import put, series, value, watch
from support.synthetic import LiveRun, live_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics import catalog
from profd.daemon.metrics.catalog import Sample
from profd.daemon.metrics.runs import RunWatch
from profd.daemon.store.records import FindingsTaken, Found

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
