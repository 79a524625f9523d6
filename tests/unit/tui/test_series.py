"""The numbers of the timeline: of a run whose processes use the same each second."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.gpurun import waits, write_gpu_run
from support.present import there
from support.synthetic import MAIN, STARTED_NS, worker

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import total_of_series
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, Point, PointsTaken
from profd.daemon.timerange import TimeRange
from profd.tui.columns import Ruler
from profd.tui.series import GPU_MEMORY_SERIES, GPU_SERIES, RunSeries
from profd.tui.snapshot import Series

SECONDS = 20
CORES = 0.6 + 2 * 0.97
WHOLE = Ruler.filling(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS, SECONDS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        yield reader


def series_of(reader: RunReader) -> RunSeries:
    series = RunSeries(reader)
    series.catch_up()
    return series


def cells(series: RunSeries, name: str, ruler: Ruler) -> tuple[float | None, ...]:
    return strip(series, name, ruler=ruler).cells


def row_of(reader: RunReader, identity: Identity) -> int:
    return next(row.id for row in reader.processes.values() if row.pid == identity.pid)


def strip(
    series: RunSeries, name: str, chosen: TimeRange | None = None, ruler: Ruler = WHOLE
) -> Series:
    return next(one for one in series.strips(ruler, chosen) if one.name == name)


def test_each_column_has_the_sum_of_all_processes_and_repeats_its_readings(
    reader: RunReader,
) -> None:
    assert cells(series_of(reader), "cpu_cores", WHOLE) == pytest.approx((CORES,) * SECONDS)
    # 900 MB, and one more each second, beside two workers of 300 MB.
    memory = cells(series_of(reader), "rss_bytes", WHOLE)
    assert memory == pytest.approx([1500e6 + 1e6 * second for second in range(SECONDS)])
    ruler = Ruler(STARTED_NS - 2 * SECOND_NS, SECOND_NS, 4)
    assert cells(series_of(reader), "host_cpu_share", ruler) == (None, None, 0.64, 0.64)
    ruler = Ruler(STARTED_NS + SECOND_NS, SECOND_NS // 10, 20)
    assert cells(series_of(reader), "rss_bytes", ruler) == pytest.approx(
        [1501e6] * 10 + [1502e6] * 10
    )


def test_columns_of_a_minute_are_read_from_the_sums_and_tell_the_same(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=210)) as reader:
        series = series_of(reader)
        finer = Ruler(STARTED_NS, MINUTE_NS // 2, 6)
        for name in ("cpu_cores", "rss_bytes", "host_cpu_share"):
            halves = [there(cell) for cell in cells(series, name, finer)]
            means = [statistics.fmean(pair) for pair in zip(halves[::2], halves[1::2], strict=True)]
            assert cells(series, name, Ruler(STARTED_NS, MINUTE_NS, 3)) == pytest.approx(means)
            wide = cells(series, name, Ruler(STARTED_NS, 3 * MINUTE_NS, 1))
            assert wide == pytest.approx((statistics.fmean(means),))


def test_what_is_there_for_a_part_of_a_column_counts_for_that_part(tmp_path: Path) -> None:
    also = [
        PointsTaken(STARTED_NS + at_s * SECOND_NS, (Point(GPU_MEMORY_SERIES, 4e9, device=device),))
        for device, seconds in (("gpu0", SECONDS), ("gpu1", SECONDS // 4))
        for at_s in range(1, seconds + 1)
    ]
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS, also=also)) as reader:
        whole = Ruler(STARTED_NS, SECONDS * SECOND_NS, 1)
        assert cells(series_of(reader), GPU_MEMORY_SERIES, whole) == pytest.approx((5e9,))


def test_readings_that_are_missing_leave_a_gap(tmp_path: Path) -> None:
    also = [
        PointsTaken(STARTED_NS + at_s * SECOND_NS, (Point(name, 0.5, device="gpu0"),))
        for name, seconds in ((GPU_SERIES, (2, 3, 4, 12)), ("gpu_power_watts", (5, 10, 15)))
        for at_s in seconds
    ]
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS, also=also)) as reader:
        series = series_of(reader)
        assert cells(series, GPU_SERIES, WHOLE) == (
            None,
            *[0.5] * 3,
            *[None] * 5,
            *[0.5] * 3,
            *[None] * 8,
        )
        # What is read every five seconds by design has none.
        assert cells(series, "gpu_power_watts", WHOLE) == (*[0.5] * 15, *[None] * 5)


def test_series_have_the_newest_value_and_strips_the_mean_or_the_peak(reader: RunReader) -> None:
    series = series_of(reader)
    assert series.last("cpu_cores", row_of(reader, worker(1))) == 0.97
    assert series.last("rss_bytes", row_of(reader, MAIN)) == 900e6 + 1e6 * (SECONDS - 1)
    assert series.last("host_cpu_share", None) == 0.64
    assert series.last("gpu_process_memory_bytes", row_of(reader, MAIN)) is None
    cpu, memory = strip(series, "cpu_cores"), strip(series, "rss_bytes")
    assert (cpu.kind, memory.kind) == ("mean", "peak")
    assert (cpu.value, memory.value) == pytest.approx((CORES, 1519e6))
    chosen = TimeRange(STARTED_NS + 2 * SECOND_NS, STARTED_NS + 5 * SECOND_NS)
    assert strip(series, "rss_bytes", chosen).value == pytest.approx(1504e6)


def test_means_are_of_the_run_or_of_a_process_in_a_range(reader: RunReader, tmp_path: Path) -> None:
    series, main = series_of(reader), row_of(reader, MAIN)
    assert series.mean(
        "profd_cpu_cores", None, TimeRange(STARTED_NS, reader.info.end_ns)
    ) == pytest.approx(0.041)
    first_half = TimeRange(STARTED_NS, STARTED_NS + 10 * SECOND_NS)
    of_summary = total_of_series(reader, "rss_bytes", main, Selection(to_ns=first_half.to_ns)).mean
    assert series.mean("rss_bytes", main, first_half) == of_summary == pytest.approx(904.5e6)
    assert (
        series.mean(
            "rss_bytes", main, TimeRange(STARTED_NS + 99 * SECOND_NS, STARTED_NS + 100 * SECOND_NS)
        )
        is None
    )
    # The GPU rests in the first second, and is busy in the next one: a strip has the columns of its
    # range alone.
    with RunReader(write_gpu_run(tmp_path / "gpu.profd", {"0": waits}, {})) as other:
        chosen = TimeRange(STARTED_NS + SECOND_NS, STARTED_NS + 2 * SECOND_NS)
        of_summary = total_of_series(
            other, GPU_SERIES, None, Selection(chosen.from_ns, chosen.to_ns), "0"
        ).mean
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
        assert cells(series, "host_cpu_share", ruler) == (0.64, 0.64, 0.64, None, None)
        run.advance(2)
        reader.refresh()
        series.catch_up()
        assert strip(series, "rss_bytes").value == pytest.approx(1504e6)
        assert cells(series, "host_cpu_share", ruler) == (0.64,) * 5
