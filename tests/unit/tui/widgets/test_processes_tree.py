"""The process tree: what each process takes, its pace, and the last that is known of those that have ended."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from support.gpurun import OTHER_RANK, waits, write_gpu_run
from support.synthetic import MAIN, STARTED_NS

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import Point, PointsTaken, ProcessEnded
from profd.tui.snapshot import Snapshot
from profd.tui.view import Range
from profd.tui.widgets.processes import ProcessTable


def is_of(chosen: Range, snapshot: Snapshot) -> bool:
    return snapshot.view.chosen == chosen


async def rows_of(opened: OpenDashboard) -> list[str]:
    """Open the tree, and return its lines, titles first."""
    await opened.press("3")
    return [line for line in opened.text(ProcessTable).splitlines() if line.strip()]


async def test_memory_of_the_gpus_is_that_of_all_that_a_process_uses(tmp_path: Path) -> None:
    holders = {MAIN: ("0", "1"), OTHER_RANK: ("1",)}
    async with open_dashboard(write_gpu_run(tmp_path / "a.profd", {"0": waits, "1": waits}, holders)) as opened:
        titles, first, second = await rows_of(opened)
    assert "GPU mem" in titles
    assert "2.0 GB" in first
    assert "1.0 GB" in second


async def test_without_gpus_and_counted_steps_there_are_no_such_columns_and_with_room_there_are_phases(
    tmp_path: Path,
) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd")) as opened:
        titles = (await rows_of(opened))[0]
        assert titles.split() == ["process", "pid", "CPU", "RSS", "threads", "function,", "mostly", "where"]
        await opened.resize(200, 60)
        titles, main, worker, _ = await rows_of(opened)
    assert "phase" in titles
    assert "data wait" in main
    assert "data" not in worker.replace("data.py", "")


async def test_training_processes_have_their_pace(tmp_path: Path) -> None:
    counts = [
        PointsTaken(STARTED_NS + at_s * SECOND_NS, (Point("step_count", 2.0 * at_s, MAIN),)) for at_s in (0, 5, 10)
    ]
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd", also=counts)) as opened:
        titles, main, worker, _ = await rows_of(opened)
    assert "steps" in titles
    assert "2.00/s" in main
    assert "/s" not in worker


async def test_what_has_ended_keeps_its_last_numbers_and_is_dimmed(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=4) as run:
        gone = ProcessEnded(synthetic.worker(2), run.started_ns + 4 * SECOND_NS, exit_code=0)
        assert run.writer.put(gone)
        run.advance()
        async with open_dashboard(run.path) as opened:
            _, _, running, ended = await rows_of(opened)
            assert "worker 2 ended" in ended
            for line in (running, ended):
                assert "97 %" in line
                assert "300 MB" in line
            table = opened.widget(ProcessTable)
            faint = [part for part in table.render_line(3) if "97 %" in part.text]
            assert faint[0].style == table.style_of("faint")


async def test_in_a_range_it_is_the_mean_of_the_time_that_a_process_lived(tmp_path: Path) -> None:
    path = synthetic.write_run(
        tmp_path / "a.profd", also=[ProcessEnded(synthetic.worker(2), STARTED_NS + 15 * SECOND_NS)]
    )
    async with open_dashboard(path) as opened:
        await opened.press("3")
        for from_s in (0, 12):
            chosen = Range(STARTED_NS + from_s * SECOND_NS, STARTED_NS + 20 * SECOND_NS)
            opened.dashboard.choose_range(chosen.from_ns, chosen.to_ns)
            snapshot = await opened.snapshot(functools.partial(is_of, chosen))
            assert [one.cpu_cores for one in snapshot.processes] == pytest.approx([0.6, 0.97, 0.97])
