"""What a series was over a run, or a part of it, is the same number wherever it is shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gappedrun import DEVICE, POWER, SECONDS, UTILIZATION, write_gapped_run
from support.metricvalues import value, watch
from support.synthetic import MAIN_TID, STARTED_NS

from profd.daemon.analyze.coverage import COST_SERIES
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import mean_of_series
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.fleet.dataset import TABLES
from profd.daemon.fleet.tables import ROWS, Source
from profd.daemon.metrics import catalog
from profd.daemon.metrics import runs as metrics_watch
from profd.daemon.render.payload import take_payload
from profd.daemon.render.seriespayload import Series
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.stepfunction import Aggregate
from profd.tui.bins import Ruler
from profd.tui.series import RunSeries
from profd.tui.view import Range

RANGES = ((0, SECONDS), (0, 60), (95, 150), (90, 870), (601, 602))
"""In seconds: with and without whole minutes and pauses."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gapped_run(tmp_path_factory.mktemp("gapped") / "run.profd")


@pytest.fixture(scope="module")
def reader(path: Path) -> Iterator[RunReader]:
    with RunReader(path) as reader:
        yield reader


def series_of(reader: RunReader, name: str, device: str | None = None) -> int:
    found = reader.find_series(name, device=device)
    assert found is not None
    return found.id


def read_one_by_one(reader: RunReader, series: int, from_s: float = 0, to_s: float = SECONDS) -> Aggregate:
    """Return what the readings alone say of a range."""
    return reader.steps(series).over(*(STARTED_NS + round(at_s * SECOND_NS) for at_s in (from_s, to_s)))


@pytest.mark.parametrize("span", RANGES)
@pytest.mark.parametrize("name", [UTILIZATION, POWER])
def test_a_range_has_one_mean(reader: RunReader, span: tuple[int, int], name: str) -> None:
    within = Range(*(STARTED_NS + at_s * SECOND_NS for at_s in span))
    selection = Selection(within.from_ns, within.to_ns)
    expected = read_one_by_one(reader, series_of(reader, name, DEVICE), *span).mean
    gpu = summarize(reader, selection).gpus[0]
    series = RunSeries(reader)
    series.catch_up()
    strips = {one.name: one.value for one in series.strips(Ruler.filling(*span_ns(), 100), within)}

    assert mean_of_series(reader, name, None, selection, DEVICE) == pytest.approx(expected)
    assert (gpu.utilization if name == UTILIZATION else gpu.power_watts) == pytest.approx(expected)
    assert strips[name] == pytest.approx(expected)


def span_ns() -> tuple[int, int]:
    return STARTED_NS, STARTED_NS + SECONDS * SECOND_NS


def test_a_range_has_one_mean_of_a_process(reader: RunReader) -> None:
    process = next(row.id for row in reader.processes.values() if row.pid == MAIN_TID)
    series = RunSeries(reader)
    series.catch_up()
    for from_s, to_s in RANGES:
        within = Range(STARTED_NS + from_s * SECOND_NS, STARTED_NS + to_s * SECOND_NS)
        summary = summarize(reader, Selection(within.from_ns, within.to_ns))
        cores = next(one.cpu_cores for one in summary.processes if one.pid == MAIN_TID)
        assert series.mean("cpu_cores", process, within) == pytest.approx(cores)


def test_the_run_cost_the_same(reader: RunReader) -> None:
    expected = read_one_by_one(reader, series_of(reader, COST_SERIES)).mean
    assert summarize(reader).cost_core_share == pytest.approx(expected)
    run = Range(reader.info.started_ns, reader.info.end_ns)
    assert RunSeries(reader).mean(COST_SERIES, None, run) == pytest.approx(expected)


def test_the_metrics_count_its_integral(path: Path, reader: RunReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_watch, "OLD_NS", SECONDS * SECOND_NS)
    samples = watch(path).take()
    for metric, labels, series in (
        (catalog.GPU_BUSY_SECONDS, ("0",), series_of(reader, UTILIZATION, DEVICE)),
        (catalog.SELF_CPU, (), series_of(reader, COST_SERIES)),
    ):
        integral = read_one_by_one(reader, series).integral
        assert value(samples, metric, *labels) == pytest.approx(integral / SECOND_NS)


@pytest.mark.parametrize("name", [UTILIZATION, POWER])
def test_the_report_and_the_data_set_know_it_for_as_long(reader: RunReader, name: str) -> None:
    expected = read_one_by_one(reader, series_of(reader, name, DEVICE))
    rows = [dict(zip(TABLES["series"], row.values, strict=True)) for row in ROWS["series"](Source(reader))]
    found: list[dict[str, Any]] = [row for row in rows if (row["name"], row["device"]) == (name, DEVICE)]
    assert sum(row["known_ns"] for row in found) == expected.known_ns
    assert sum(row["known_ns"] * row["mean"] for row in found) == pytest.approx(expected.integral)
    assert (min(row["least"] for row in found), max(row["most"] for row in found)) == (expected.least, expected.most)
    if name == UTILIZATION:
        known_ms, area = held(take_payload(reader, PhaseIndex(reader), ()).gpus[0].utilization)
        assert known_ms == pytest.approx(expected.known_ns / MILLISECOND_NS, rel=1e-3)
        assert area / known_ms == pytest.approx(expected.mean, rel=1e-3)


def held(series: Series) -> tuple[int, float]:
    """Return for how many ms the page knows a series, and its integral."""
    lengths_ms = list(series.steps_ms)
    for place, gap_ms in zip(itertools.accumulate(series.gap_steps), series.gaps_ms, strict=True):
        lengths_ms[place] -= gap_ms
    scale = 10**series.digits
    return sum(lengths_ms), sum(each * length for each, length in zip(series.values, lengths_ms, strict=True)) / scale
