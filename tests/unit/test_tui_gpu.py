"""GPUs on the timeline: their mean utilization, or that there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import STARTED_NS, run_started
from theater import play
from training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.columns import ColumnReader
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.writer import RunWriter
from profd.tui.timeline.bins import Ruler
from profd.tui.timeline.gauges import Gauges
from profd.tui.widgets.timeline import Timeline


def write_gpus(path: Path) -> Path:
    """Write four seconds of two GPUs: one always busy, the other never."""
    writer = RunWriter(path, run_started(), describe)
    for second in range(5):
        points = tuple(Point("gpu_utilization_share", share, device=f"gpu{share:.0f}") for share in (0.0, 1.0))
        writer.put(PointsTaken(STARTED_NS + second * SECOND_NS, points))
    writer.close()
    return path


async def test_dashboard_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd")) as theater:
        lines = [line for line in theater.text(Timeline).splitlines() if line.startswith(" GPU")]
    assert [line.split() for line in lines] == [["GPU", "no", "GPU"]]


def test_gpus_are_averaged(tmp_path: Path) -> None:
    with RunReader(write_gpus(tmp_path / "a.profd")) as reader:
        gauges = Gauges(reader, ColumnReader(reader.path))
        gauges.catch_up()
        ruler = Ruler.filling(STARTED_NS, STARTED_NS + 4 * SECOND_NS, 4)
        found = {gauge.name: gauge for gauge in gauges.strips(ruler, None)}["gpu_utilization_share"]
    assert (found.cells, found.value, found.kind) == ((0.5,) * 4, 0.5, "mean")


async def test_timeline_has_the_gpus_as_a_strip(tmp_path: Path) -> None:
    async with play(write_gpus(tmp_path / "a.profd")) as theater:
        line = next(line for line in theater.text(Timeline).splitlines() if line.startswith(" GPU"))
    assert "▄▄▄" in line
    assert "50 %" in line


@pytest.mark.parametrize(("has_gpu", "labels"), [(True, ["GPU", "CPU"]), (False, ["CPU", "RSS"])])
async def test_where_there_is_little_room_a_gpu_is_worth_more_than_memory(
    tmp_path: Path, has_gpu: bool, labels: list[str]
) -> None:
    path = tmp_path / "a.profd"
    run = write_gpus(path) if has_gpu else synthetic.write_run(path)
    async with play(run, size=(80, 24)) as theater:
        words = [line.split()[:1] for line in theater.text(Timeline).splitlines()]
    assert [word[0] for word in words if word and word[0] in ("CPU", "GPU", "RSS", "host")] == labels
