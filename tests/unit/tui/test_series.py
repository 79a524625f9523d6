"""The numbers of the timeline: of a run whose processes use the same each second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.gpurun import waits, write_gpu_run
from support.synthetic import MAIN, STARTED_NS, worker

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import mean_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, Point, PointsTaken
from profd.daemon.store.stepfunction import MINUTE_NS
from profd.tui import series as series_module
from profd.tui.bins import Ruler
from profd.tui.series import GPU_SERIES, RunSeries
from profd.tui.snapshot import Series
from profd.tui.view import Range

SECONDS = 20
CORES = 0.6 + 2 * 0.97
WHOLE = Ruler.filling(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS, SECONDS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        yield reader


def series_of(reader: RunReader) -> RunSeries:
    series = RunSeries(reader)
    while series.has_backlog:
        series.read_backlog()
    series.catch_up()
    return series


def row_of(reader: RunReader, identity: Identity) -> int:
    return next(row.id for row in reader.processes.values() if row.pid == identity.pid)


def strip(series: RunSeries, name: str, chosen: Range | None = None) -> Series:
    return next(one for one in series.strips(WHOLE, chosen) if one.name == name)


def test_each_column_has_the_sum_of_all_processes_and_repeats_its_readings(
    reader: RunReader,
) -> None:
    assert series_of(reader).cells("cpu_cores", WHOLE) == pytest.approx((CORES,) * SECONDS)
    # 900 MB, and one more each second, beside two workers of 300 MB.
    memory = series_of(reader).cells("rss_bytes", WHOLE)
    assert memory == pytest.approx([1500e6 + 1e6 * second for second in range(SECONDS)])
    ruler = Ruler(STARTED_NS - 2 * SECOND_NS, SECOND_NS, 4)
    assert series_of(reader).cells("host_cpu_share", ruler) == (None, None, 0.64, 0.64)
    ruler = Ruler(STARTED_NS + SECOND_NS, SECOND_NS // 10, 20)
    assert series_of(reader).cells("rss_bytes", ruler) == pytest.approx(
        [1501e6] * 10 + [1502e6] * 10
    )


@pytest.mark.parametrize(
    ("seconds", "most", "columns_ns"),
    [(SECONDS, series_module.MOST_READINGS, SECOND_NS), (210, 0, MINUTE_NS)],
    ids=["a long run", "of many readings, by the minute"],
)
def test_the_backlog_tells_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, most: int, columns_ns: int
) -> None:
    ruler = Ruler(STARTED_NS, columns_ns, seconds * SECOND_NS // columns_ns + 1)
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=seconds)) as reader:
        at_once = series_of(reader)
        monkeypatch.setattr(series_module, "BACKLOG_NS", 5 * SECOND_NS)
        monkeypatch.setattr(series_module, "MOST_READINGS", most)
        series = RunSeries(reader)
        assert (series.has_backlog, series.read_share) == (True, 0.0)
        series.read_backlog()
        assert 0 < series.read_share < 1
        while series.has_backlog:
            series.read_backlog()
        assert series.read_share == 1.0
        series.catch_up()
        for name in ("cpu_cores", "rss_bytes", "host_cpu_share"):
            assert series.cells(name, ruler) == pytest.approx(at_once.cells(name, ruler))
        assert series.newest("cpu_cores", row_of(reader, MAIN)) == at_once.newest(
            "cpu_cores", row_of(reader, MAIN)
        )
        if not most:
            finer = series.cells("rss_bytes", Ruler(STARTED_NS, MINUTE_NS // 4, 4))
            assert finer == pytest.approx((at_once.cells("rss_bytes", ruler)[0],) * 4)


def test_readings_that_are_missing_leave_a_gap(tmp_path: Path) -> None:
    also = [
        PointsTaken(STARTED_NS + at_s * SECOND_NS, (Point(name, 0.5, device="gpu0"),))
        for name, seconds in ((GPU_SERIES, (2, 3, 4, 12)), ("gpu_power_watts", (5, 10, 15)))
        for at_s in seconds
    ]
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS, also=also)) as reader:
        series = series_of(reader)
    assert series.cells(GPU_SERIES, WHOLE) == (
        None,
        *[0.5] * 3,
        *[None] * 5,
        *[0.5] * 3,
        *[None] * 8,
    )
    # What is read every five seconds by design has none.
    assert series.cells("gpu_power_watts", WHOLE) == (*[0.5] * 15, *[None] * 5)


def test_series_have_the_newest_value_and_strips_the_mean_or_the_peak(reader: RunReader) -> None:
    series = series_of(reader)
    assert series.newest("cpu_cores", row_of(reader, worker(1))) == 0.97
    assert series.newest("rss_bytes", row_of(reader, MAIN)) == 900e6 + 1e6 * (SECONDS - 1)
    assert series.newest("host_cpu_share") == 0.64
    assert series.newest("gpu_process_memory_bytes", row_of(reader, MAIN)) is None
    cpu, memory = strip(series, "cpu_cores"), strip(series, "rss_bytes")
    assert (cpu.kind, memory.kind) == ("mean", "peak")
    assert (cpu.value, memory.value) == pytest.approx((CORES, 1519e6))
    chosen = Range(STARTED_NS + 2 * SECOND_NS, STARTED_NS + 5 * SECOND_NS)
    assert strip(series, "rss_bytes", chosen).value == pytest.approx(1504e6)


def test_means_are_of_the_run_or_of_a_process_in_a_range(reader: RunReader, tmp_path: Path) -> None:
    series, main = series_of(reader), row_of(reader, MAIN)
    assert series.mean(
        "profd_cpu_cores", None, Range(STARTED_NS, reader.info.end_ns)
    ) == pytest.approx(0.041)
    first_half = Range(STARTED_NS, STARTED_NS + 10 * SECOND_NS)
    of_summary = mean_of_series(reader, "rss_bytes", main, Selection(to_ns=first_half.to_ns))
    assert series.mean("rss_bytes", main, first_half) == of_summary == pytest.approx(904.5e6)
    assert (
        series.mean(
            "rss_bytes", main, Range(STARTED_NS + 99 * SECOND_NS, STARTED_NS + 100 * SECOND_NS)
        )
        is None
    )
    # The GPU rests in the first second, and is busy in the next one: a strip has the columns of its
    # range alone.
    with RunReader(write_gpu_run(tmp_path / "gpu.profd", {"0": waits}, {})) as other:
        chosen = Range(STARTED_NS + SECOND_NS, STARTED_NS + 2 * SECOND_NS)
        of_summary = mean_of_series(
            other, GPU_SERIES, None, Selection(chosen.from_ns, chosen.to_ns), "0"
        )
        assert strip(series_of(other), GPU_SERIES, chosen).value == of_summary == pytest.approx(0.9)


def test_of_a_live_run_a_strip_has_what_is_now(tmp_path: Path) -> None:
    with (
        synthetic.live_run(tmp_path / "live.profd", seconds=3) as run,
        RunReader(run.path) as reader,
    ):
        series = series_of(reader)
        assert strip(series, "rss_bytes").kind == "now"
        assert strip(series, "rss_bytes").value == pytest.approx(1502e6)
        ruler = Ruler(run.started_ns, SECOND_NS, 5)
        assert series.cells("host_cpu_share", ruler) == (0.64, 0.64, 0.64, None, None)
        run.advance(2)
        reader.refresh()
        series.catch_up()
        assert strip(series, "rss_bytes").value == pytest.approx(1504e6)
        assert series.cells("host_cpu_share", ruler) == (0.64,) * 5
