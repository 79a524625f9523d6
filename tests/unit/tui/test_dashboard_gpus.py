"""GPUs on the timeline: their mean utilization, or that there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from support.gpurun import waits, write_gpu_run
from support.synthetic import BACKWARD, MAIN, STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.writer import RunWriter
from profd.tui.bins import Ruler
from profd.tui.series import RunSeries
from profd.tui.widgets.hot import HotTable
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
        assert "GPU" not in opened.text(HotTable)
        await opened.press("o", "o")
        assert opened.widget(HotTable).sorted_by == "self"
        await opened.resize(80, 24)
        assert strips(opened) == ["CPU", "RSS"]


def test_gpus_are_averaged(tmp_path: Path) -> None:
    with RunReader(write_gpus(tmp_path / "a.profd")) as reader:
        series = RunSeries(reader)
        series.catch_up()
        ruler = Ruler.filling(STARTED_NS, STARTED_NS + 4 * SECOND_NS, 4)
        found = {one.name: one for one in series.strips(ruler, None)}["gpu_utilization_share"]
    assert (found.cells, found.value, found.kind) == ((0.5,) * 4, 0.5, "mean")


async def test_timeline_has_the_gpus_as_a_strip_before_memory_where_there_is_little_room(tmp_path: Path) -> None:
    async with open_dashboard(write_gpus(tmp_path / "a.profd")) as opened:
        line = next(line for line in opened.text(Timeline).splitlines() if line.startswith(" GPU"))
        assert "▄▄▄" in line
        assert "50 %" in line
        await opened.resize(80, 24)
        assert strips(opened) == ["GPU", "CPU"]


async def test_hot_functions_have_the_utilization_of_the_summary_and_are_ordered_by_it(tmp_path: Path) -> None:
    run = write_gpu_run(tmp_path / "a.profd", {"0": waits}, {MAIN: ("0",)})
    with RunReader(run) as reader:
        known = {row.function: row.gpu_utilization for row in summarize(reader).functions}
    assert known[BACKWARD[-1].function] == pytest.approx(0.9)
    async with open_dashboard(run) as opened:
        table = opened.widget(HotTable)
        assert "GPU" in opened.text(HotTable).splitlines()[0]
        assert {row.function: row.gpu_utilization for row in table.rows} == pytest.approx(known)
        await opened.press("o", "o")
        assert "GPU ▾" in opened.text(HotTable)
        shown = [row.gpu_utilization or 0.0 for row in table.rows]
        assert shown == sorted(shown)
