"""The process tree: what each process takes, its pace, and the last that is known of those that have ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from gpurun import OTHER_RANK, waits, write_gpu_run
from synthetic import MAIN, STARTED_NS
from theater import Theater, play

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import Point, PointsTaken, ProcessEnded
from profd.tui.view import Range
from profd.tui.widgets.tree import ProcessTable


async def rows_of(theater: Theater) -> list[str]:
    """Open the tree, and return its lines, titles first."""
    await theater.press("3")
    return [line for line in theater.text(ProcessTable).splitlines() if line.strip()]


async def test_memory_of_the_gpus_is_that_of_all_that_a_process_uses(tmp_path: Path) -> None:
    holders = {MAIN: ("0", "1"), OTHER_RANK: ("1",)}
    async with play(write_gpu_run(tmp_path / "a.profd", {"0": waits, "1": waits}, holders)) as theater:
        titles, first, second = await rows_of(theater)
    assert "GPU mem" in titles
    assert "2.0 GB" in first
    assert "1.0 GB" in second


async def test_without_gpus_and_counted_steps_there_are_no_such_columns(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd")) as theater:
        titles = (await rows_of(theater))[0]
    assert titles.split() == ["process", "pid", "CPU", "RSS", "threads", "function,", "mostly", "where"]


async def test_training_processes_have_their_pace(tmp_path: Path) -> None:
    counts = [
        PointsTaken(STARTED_NS + at_s * SECOND_NS, (Point("step_count", 2.0 * at_s, MAIN),)) for at_s in (0, 5, 10)
    ]
    async with play(synthetic.write_run(tmp_path / "a.profd", also=counts)) as theater:
        titles, main, worker, _ = await rows_of(theater)
    assert "steps" in titles
    assert "2.00/s" in main
    assert "/s" not in worker


async def test_phases_are_spelled_out_where_there_is_room(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd"), size=(200, 60)) as theater:
        titles, main, worker, _ = await rows_of(theater)
    assert "phase" in titles
    assert "data wait" in main
    assert "data" not in worker.replace("data.py", "")


async def test_what_has_ended_keeps_its_last_numbers_and_is_dimmed(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=4) as run:
        gone = ProcessEnded(synthetic.worker(2), run.started_ns + 4 * SECOND_NS, exit_code=0)
        assert run.writer.put(gone)
        run.advance()
        async with play(run.path) as theater:
            _, _, running, ended = await rows_of(theater)
            assert "worker 2 ended" in ended
            for line in (running, ended):
                assert "97 %" in line
                assert "300 MB" in line
            table = theater.widget(ProcessTable)
            faint = [part for part in table.render_line(3) if "97 %" in part.text]
            assert faint[0].style == table.ink("faint")


@pytest.mark.parametrize("from_s", [0, 12])
async def test_in_a_range_it_is_the_mean_of_the_time_that_a_process_lived(tmp_path: Path, from_s: int) -> None:
    path = synthetic.write_run(
        tmp_path / "a.profd", also=[ProcessEnded(synthetic.worker(2), STARTED_NS + 15 * SECOND_NS)]
    )
    async with play(path) as theater:
        await theater.press("3")
        theater.dashboard.choose_range(STARTED_NS + from_s * SECOND_NS, STARTED_NS + 20 * SECOND_NS)
        snapshot = await theater.snapshot(lambda snapshot: snapshot.view.chosen is not None)
        assert snapshot.view.chosen == Range(STARTED_NS + from_s * SECOND_NS, STARTED_NS + 20 * SECOND_NS)
        assert [one.cpu_cores for one in snapshot.processes] == pytest.approx([0.6, 0.97, 0.97])
