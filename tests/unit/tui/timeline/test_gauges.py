"""The numbers of the timeline: of a run whose processes use the same each second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.gpurun import waits, write_gpu_run
from support.synthetic import MAIN, STARTED_NS, worker

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity
from profd.tui.snapshot import Gauge
from profd.tui.timeline import gauges as gauges_module
from profd.tui.timeline.bins import Ruler
from profd.tui.timeline.gauges import GPU_SERIES, Gauges
from profd.tui.view import Range

SECONDS = 20
CORES = 0.6 + 2 * 0.97
WHOLE = Ruler.filling(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS, SECONDS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        yield reader


def gauges_of(reader: RunReader) -> Gauges:
    gauges = Gauges(reader)
    while gauges.has_backlog:
        gauges.read_backlog()
    gauges.catch_up()
    return gauges


def row_of(reader: RunReader, identity: Identity) -> int:
    return next(row.id for row in reader.processes.values() if row.pid == identity.pid)


def strip(gauges: Gauges, name: str, chosen: Range | None = None) -> Gauge:
    return next(gauge for gauge in gauges.strips(WHOLE, chosen) if gauge.name == name)


def test_each_column_has_the_sum_of_all_processes(reader: RunReader) -> None:
    assert gauges_of(reader).cells("cpu_cores", WHOLE) == pytest.approx((CORES,) * SECONDS)
    # 900 MB, and one more each second, beside two workers of 300 MB.
    memory = gauges_of(reader).cells("rss_bytes", WHOLE)
    assert memory == pytest.approx([1500e6 + 1e6 * second for second in range(SECONDS)])


def test_columns_outside_of_the_run_are_empty(reader: RunReader) -> None:
    ruler = Ruler(STARTED_NS - 2 * SECOND_NS, SECOND_NS, 4)
    assert gauges_of(reader).cells("host_cpu_share", ruler) == (None, None, 0.64, 0.64)


def test_finer_columns_than_readings_repeat_them(reader: RunReader) -> None:
    ruler = Ruler(STARTED_NS + SECOND_NS, SECOND_NS // 10, 20)
    assert gauges_of(reader).cells("rss_bytes", ruler) == pytest.approx([1501e6] * 10 + [1502e6] * 10)


def test_the_backlog_of_a_long_run_tells_the_same(reader: RunReader, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = gauges_of(reader)
    monkeypatch.setattr(gauges_module, "BACKLOG_NS", 5 * SECOND_NS)
    gauges = Gauges(reader)
    assert gauges.has_backlog
    assert gauges.read_share == 0.0
    gauges.read_backlog()
    assert 0 < gauges.read_share < 1
    while gauges.has_backlog:
        gauges.read_backlog()
    assert gauges.read_share == 1.0
    # The file has a reading in the column in which it was made, and none in the second before the first one.
    for name, step in (("cpu_cores", 0.0), ("rss_bytes", 1e6)):
        assert gauges.cells(name, WHOLE)[1:] == pytest.approx(
            [cell - step for cell in at_once.cells(name, WHOLE)[1:] if cell]
        )


def test_the_newest_value_is_that_of_a_process_or_of_the_host(reader: RunReader) -> None:
    gauges = gauges_of(reader)
    assert gauges.newest("cpu_cores", row_of(reader, worker(1))) == 0.97
    assert gauges.newest("rss_bytes", row_of(reader, MAIN)) == 900e6 + 1e6 * (SECONDS - 1)
    assert gauges.newest("host_cpu_share") == 0.64
    assert gauges.newest("gpu_process_memory_bytes", row_of(reader, MAIN)) is None


def test_means_are_of_the_run_or_of_a_process_in_a_range(reader: RunReader) -> None:
    gauges, main = gauges_of(reader), row_of(reader, MAIN)
    assert gauges.mean("profd_cpu_cores") == pytest.approx(0.041)
    first_half = Range(STARTED_NS, STARTED_NS + 10 * SECOND_NS)
    assert gauges.of_process("rss_bytes", main, first_half) == pytest.approx(904.5e6, abs=0.6e6)
    assert (
        gauges.of_process("rss_bytes", main, Range(STARTED_NS + 99 * SECOND_NS, STARTED_NS + 100 * SECOND_NS)) is None
    )


def test_of_an_ended_run_a_strip_has_its_mean_or_its_peak(reader: RunReader) -> None:
    gauges = gauges_of(reader)
    cpu, memory = strip(gauges, "cpu_cores"), strip(gauges, "rss_bytes")
    assert (cpu.kind, memory.kind) == ("mean", "peak")
    assert (cpu.value, memory.value) == pytest.approx((CORES, 1519e6))
    chosen = Range(STARTED_NS + 2 * SECOND_NS, STARTED_NS + 5 * SECOND_NS)
    assert strip(gauges, "rss_bytes", chosen).value == pytest.approx(1504e6)


def test_of_a_range_a_strip_has_the_columns_in_it_alone(tmp_path: Path) -> None:
    # The GPU rests in the first second, and is busy in the next one.
    with RunReader(write_gpu_run(tmp_path / "gpu.profd", {"0": waits}, {})) as reader:
        chosen = Range(STARTED_NS + SECOND_NS, STARTED_NS + 2 * SECOND_NS)
        assert strip(gauges_of(reader), GPU_SERIES, chosen).value == pytest.approx(0.9)


def test_of_a_live_run_a_strip_has_what_is_now(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "live.profd", seconds=3) as run, RunReader(run.path) as reader:
        gauges = gauges_of(reader)
        assert strip(gauges, "rss_bytes").kind == "now"
        assert strip(gauges, "rss_bytes").value == pytest.approx(1502e6)
        ruler = Ruler(run.started_ns, SECOND_NS, 5)
        assert gauges.cells("host_cpu_share", ruler) == (0.64, 0.64, 0.64, None, None)
        run.advance(2)
        reader.refresh()
        gauges.catch_up()
        assert strip(gauges, "rss_bytes").value == pytest.approx(1504e6)
        assert gauges.cells("host_cpu_share", ruler) == (0.64,) * 5
