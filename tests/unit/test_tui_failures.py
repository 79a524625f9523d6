"""What the dashboard shows when something breaks under it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import synthetic
from theater import play

from profd.daemon import processes
from profd.daemon.errors import RunUnreadable
from profd.daemon.store import records
from profd.daemon.store.records import Identity
from profd.daemon.store.writer import RunWriter
from profd.tui.app import run_dashboard
from profd.tui.leaving import Leaving
from profd.tui.reading.feed import FeedFailed
from profd.tui.screens.failure import FailureScreen
from profd.tui.widgets.header import Header
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline
from profd.tui.widgets.tree import ProcessTable
from profd.tui.widgets.verdict import VerdictLine


async def test_a_file_that_breaks_gives_a_screen_with_the_remedy(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with play(run.path) as theater:
            with sqlite3.connect(run.path) as other:
                other.execute("DROP TABLE recording")
            other.close()
            await theater.until(FeedFailed)
            screen = theater.top()
            assert isinstance(screen, FailureScreen)
            assert "no such table" in screen.error.what
            assert screen.error.remedy
            await theater.press("b")
    assert theater.app.return_value is Leaving.KEEP


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
        async with play(tmp_path / "a.profd") as theater:
            assert "●" in theater.text(Header)
            os.kill(recorder.pid, signal.SIGKILL)
            await theater.snapshot(lambda snapshot: snapshot.info.state == "interrupted")
            assert "cut off" in theater.text(Header)
            assert "live" not in theater.text(Timeline)
            assert theater.notices() == ["profd's recorder was ended; all it wrote is kept"]
    finally:
        recorder.communicate()


async def test_a_run_without_samples_says_why(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "a.profd", synthetic.run_started(), synthetic.describe)
    at_ns = synthetic.STARTED_NS
    writer.put(records.ProcessSeen(synthetic.MAIN, None, ("python",), "main", None, None, "3.11", at_ns))
    writer.put(records.EventHappened(at_ns, "error", "sampling stopped: no such process"))
    writer.put(records.RunEnded(at_ns, "failed"))
    writer.close()

    async with play(tmp_path / "a.profd") as theater:
        assert "No samples: sampling stopped: no such process" in theater.text(VerdictLine)
        assert "recording failed" in theater.text(Header)
        events = [segment for segment in theater.widget(TabLine).render_line(0) if "Events" in segment.text]
        assert events[0].style is not None
        assert events[0].style.color == theater.widget(TabLine).ink("bad").color


@pytest.mark.parametrize(
    ("code", "number", "said"), [(0, None, "ended with 0"), (3, None, "ended with 3"), (None, 9, "ended by SIGKILL")]
)
async def test_how_the_target_ended_is_said(tmp_path: Path, code: int | None, number: int | None, said: str) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", exit_code=code, exit_signal=number)
    async with play(run) as theater:
        assert said in theater.text(Header)


@pytest.mark.parametrize("tab", ["1", "2", "3", "4", "5", "6", "7"])
async def test_a_file_that_breaks_under_any_tab_gives_that_screen(tmp_path: Path, tab: str) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with play(run.path) as theater:
            await theater.press(tab, "down")
            with sqlite3.connect(run.path) as other:
                other.execute("DROP TABLE recording")
            other.close()
            await theater.until(FeedFailed)
            assert isinstance(theater.top(), FailureScreen)
            await theater.press("q")
    assert theater.app.return_value is Leaving.END


async def test_five_hundred_processes_are_shown_and_scrolled(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd", seconds=1, workers=500)) as theater:
        await theater.press("3", "end")
        table = theater.widget(ProcessTable)
        assert len(table.rows) == 501
        assert "worker 500" in theater.text(ProcessTable)
        await theater.press("2", "5", "1")
        assert "Condition.wait" in theater.text(HotTable)
