"""What the dashboard shows when something breaks under it."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support import synthetic
from support.dashboard import open_dashboard

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store import records
from profd.daemon.store.records import Identity
from profd.daemon.store.writer import RunWriter
from profd.tui.app import run_dashboard
from profd.tui.dialogs import FailureScreen, Leaving
from profd.tui.feed import FeedFailed, FlameGrown
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header, VerdictLine
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.processes import ProcessTable
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline


def break_file(path: Path) -> None:
    """Take the recordings out of a run file, as another process."""
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("DROP TABLE recording")


async def test_a_file_that_breaks_gives_a_screen_with_the_remedy(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path) as opened:
            break_file(run.path)
            await opened.until(FeedFailed)
            screen = opened.top()
            assert isinstance(screen, FailureScreen)
            assert "no such table" in screen.error.what
            assert screen.error.remedy
            await opened.press("b")
    assert opened.app.return_value is Leaving.KEEP


def test_a_file_that_cannot_be_read_at_all_is_an_error_before_anything_is_drawn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.profd").write_bytes(b"text")

    with pytest.raises(RunUnreadable):
        run_dashboard(tmp_path / "a.profd")

    assert capfd.readouterr() == ("", "")


async def test_a_recorder_that_is_killed_is_said_to_be_gone(tmp_path: Path) -> None:
    recorder = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = processes.read_stat(recorder.pid)
    assert stat is not None
    started = msgspec.structs.replace(
        synthetic.run_started(live=True), recorder=Identity(recorder.pid, stat.start_ticks)
    )
    writer = RunWriter(tmp_path / "a.profd", started, synthetic.describe)
    writer.close()
    try:
        async with open_dashboard(tmp_path / "a.profd") as opened:
            assert "●" in opened.text(Header)
            os.kill(recorder.pid, signal.SIGKILL)
            await opened.snapshot(lambda snapshot: snapshot.info.state == "interrupted")
            assert "cut off" in opened.text(Header)
            assert "live" not in opened.text(Timeline)
            assert opened.notices() == ["profd's recorder was ended; all it wrote is kept"]
    finally:
        recorder.communicate()


async def test_a_run_without_samples_says_why(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "a.profd", synthetic.run_started(), synthetic.describe)
    at_ns = synthetic.STARTED_NS
    writer.put(records.ProcessSeen(synthetic.MAIN, None, ("python",), "main", None, None, "3.11", at_ns))
    writer.put(records.EventHappened(at_ns, "error", "sampling stopped: no such process"))
    writer.put(records.RunEnded(at_ns, "failed"))
    writer.close()

    async with open_dashboard(tmp_path / "a.profd") as opened:
        assert "No samples: sampling stopped: no such process" in opened.text(VerdictLine)
        assert "recording failed" in opened.text(Header)
        events = [segment for segment in opened.widget(TabLine).render_line(0) if "Events" in segment.text]
        assert events[0].style is not None
        assert events[0].style.color == opened.widget(TabLine).style_of("bad").color


async def test_a_file_that_breaks_under_any_tab_gives_that_screen(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path) as opened:
            for tab in range(1, 8):
                await opened.press(str(tab), "down")
            break_file(run.path)
            await opened.until(FeedFailed)
            assert isinstance(opened.top(), FailureScreen)
            await opened.press("q")
    assert opened.app.return_value is Leaving.END


def write_functions(path: Path, functions: int) -> Path:
    """Write a second in each of many functions, ten of which call each other."""
    writer = RunWriter(path, synthetic.run_started(), synthetic.describe)
    writer.put(synthetic.main_process())
    frames = [
        records.Frame(f"function_{number}", f"/home/ada/part{number % 97}.py", number) for number in range(functions)
    ]
    stacks = [tuple(frames[first : first + 10]) for first in range(0, functions, 10)]
    spans = [(stack[: depth + 1], 10) for stack in stacks for depth in range(10)]
    for number, first in enumerate(range(0, functions, 100)):
        thread = (synthetic.MAIN_TID, "MainThread", True, spans[first : first + 100])
        writer.put(synthetic.recording(synthetic.MAIN, synthetic.STARTED_NS + number * SECOND_NS, (thread,)))
    writer.put(records.RunEnded(synthetic.STARTED_NS + functions // 100 * SECOND_NS, "target-exited", 0))
    writer.close()
    return path


@pytest.mark.dashboard
async def test_ten_thousand_functions_are_shown_ordered_searched_and_walked_through(tmp_path: Path) -> None:
    async with open_dashboard(write_functions(tmp_path / "a.profd", 10_000)) as opened:
        table = opened.widget(HotTable)
        assert len(table.rows) == 10_000
        await opened.press("end", "o", "l")
        await opened.snapshot(lambda snapshot: snapshot.view.by_line)
        await opened.press("slash", *"function_9999", "enter")
        assert [row.function for row in table.rows] == ["function_9999"]
        await opened.press("2")
        await opened.until(FlameGrown)
        await opened.press("down", "down", "enter", "i", "f", "c", "slash", *"function_7", "enter")
        assert "of the time has" in opened.text(FlameView)
        await opened.resize(20, 5)
        await opened.press("3", "1", "down")
        await opened.resize(120, 36)
        assert len(table.rows) == 10_000


@pytest.mark.dashboard
async def test_five_hundred_processes_are_shown_and_scrolled(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd", seconds=1, workers=500)) as opened:
        await opened.press("3", "end")
        table = opened.widget(ProcessTable)
        assert len(table.rows) == 501
        assert "worker 500" in opened.text(ProcessTable)
        await opened.press("2", "5", "1")
        assert "Condition.wait" in opened.text(HotTable)
