"""GPUs on the timeline: their mean utilization, or that there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from support.gpurun import SECONDS, waits, write_gpu_run
from support.synthetic import BACKWARD, DATA_WAIT, MAIN, STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.writer import RunWriter
from profd.tui.samples import devices
from profd.tui.timeline.bins import Ruler
from profd.tui.timeline.gauges import Gauges
from profd.tui.view import Range
from profd.tui.widgets.hot import HotTable, gpu_idle
from profd.tui.widgets.timeline import Timeline


def write_gpus(path: Path) -> Path:
    """Write four seconds of two GPUs: one always busy, the other never."""
    writer = RunWriter(path, run_started(), describe)
    for second in range(5):
        points = tuple(Point("gpu_utilization_share", share, device=f"gpu{share:.0f}") for share in (0.0, 1.0))
        writer.put(PointsTaken(STARTED_NS + second * SECOND_NS, points))
    writer.close()
    return path


def strips(opened: OpenDashboard) -> list[str]:
    """Return the names of the strips of the timeline."""
    words = [line.split()[:1] for line in opened.text(Timeline).splitlines()]
    return [word[0] for word in words if word and word[0] in ("CPU", "GPU", "RSS", "host")]


async def test_without_a_gpu_that_is_said_and_nothing_is_ordered_by_it(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd")) as opened:
        lines = [line for line in opened.text(Timeline).splitlines() if line.startswith(" GPU")]
        assert [line.split() for line in lines] == [["GPU", "no", "GPU"]]
        assert "GPU idle" not in opened.text(HotTable)
        await opened.press("o", "o")
        assert opened.widget(HotTable).sorted_by == "self"
        await opened.resize(80, 24)
        assert strips(opened) == ["CPU", "RSS"]


def test_gpus_are_averaged(tmp_path: Path) -> None:
    with RunReader(write_gpus(tmp_path / "a.profd")) as reader:
        gauges = Gauges(reader)
        gauges.catch_up()
        ruler = Ruler.filling(STARTED_NS, STARTED_NS + 4 * SECOND_NS, 4)
        found = {gauge.name: gauge for gauge in gauges.strips(ruler, None)}["gpu_utilization_share"]
    assert (found.cells, found.value, found.kind) == ((0.5,) * 4, 0.5, "mean")


async def test_timeline_has_the_gpus_as_a_strip_before_memory_where_there_is_little_room(tmp_path: Path) -> None:
    async with open_dashboard(write_gpus(tmp_path / "a.profd")) as opened:
        line = next(line for line in opened.text(Timeline).splitlines() if line.startswith(" GPU"))
        assert "▄▄▄" in line
        assert "50 %" in line
        await opened.resize(80, 24)
        assert strips(opened) == ["GPU", "CPU"]


async def test_hot_functions_say_how_idle_the_gpu_was_and_are_ordered_by_it(tmp_path: Path) -> None:
    run = write_gpu_run(tmp_path / "a.profd", {"0": waits}, {MAIN: ("0",)})
    async with open_dashboard(run) as opened:
        table = opened.widget(HotTable)
        assert "GPU idle" in opened.text(HotTable).splitlines()[0]
        idle = {row.function: gpu_idle(row) for row in table.rows}
        assert idle[BACKWARD[-1].function] == pytest.approx(0.1)
        assert idle[DATA_WAIT[-1].function] == pytest.approx(1.0)
        await opened.press("o", "o")
        assert "GPU idle ▾" in opened.text(HotTable)
        shown = [gpu_idle(row) or 0.0 for row in table.rows]
        assert shown == sorted(shown, reverse=True)


def test_gpus_of_a_long_range_are_looked_at_in_parts_and_seldom_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "LOOKED_AT_NS", 15 * SECOND_NS)
    with RunReader(write_gpu_run(tmp_path / "a.profd", {"0": waits}, {})) as reader:
        seen = devices.Devices(reader)
        threads = frozenset(reader.threads)
        whole = Range(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS)
        parts = seen.busy(whole, threads)
        by_leaf = {reader.frames_of(stack)[-1].function: one for stack, one in parts.items()}
        assert by_leaf[DATA_WAIT[-1].function].utilization == pytest.approx(0.0, abs=0.01)
        assert by_leaf[BACKWARD[-1].function].utilization == pytest.approx(0.9, abs=0.01)
        assert seen.busy(Range(whole.from_ns + SECOND_NS, whole.to_ns), threads) is parts
        assert seen.busy(Range(whole.from_ns + 3 * SECOND_NS, whole.to_ns), threads) is not parts
