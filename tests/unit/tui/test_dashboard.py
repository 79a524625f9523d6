"""Every key of the dashboard, by what it changes on the screen."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard, train_backward
from support.findingruns import HEALTHY, write_case
from support.present import there
from support.waiting import eventually

from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.errors import RunUnreadable
from profd.daemon.events import EventKind
from profd.daemon.store import records
from profd.tui import app
from profd.tui.app import ProfdApp, run_dashboard
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import FailureScreen, Leaving
from profd.tui.feed import FeedFailed
from profd.tui.runmodel import RunModel
from profd.tui.widgets.header import Header, VerdictLine
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.processes import ProcessTable
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline


async def test_o_and_clicks_order_the_rows_and_tabs_can_be_clicked(
    opened: OpenDashboard,
) -> None:
    table = opened.widget(HotTable)
    await opened.press("2", "o")
    assert [row.total_share for row in table.rows[:3]] == [1, 1, 1]
    assert "total ▾" in opened.text(HotTable)
    await opened.press("o")
    assert table.rows[0].function == "Condition.wait"
    await opened.press("down")
    chosen = there(table.current)
    await opened.press("o")
    assert table.current == chosen
    assert chosen.function == "Condition.wait" != table.rows[0].function
    await opened.press("o")
    await opened.click(HotTable, (opened.text(HotTable).index("total"), 0))
    assert table.sorted_by == "total"
    assert [row.total_share for row in table.rows[:3]] == [1, 1, 1]
    assert table.current == chosen
    await opened.click(HotTable, (opened.text(HotTable).index("where"), 0))
    assert table.sorted_by == "total"

    await opened.click(TabLine, (25, 0))
    assert opened.widget(TabLine).tab == "processes"
    await opened.click(ProcessTable, (5, 2))
    assert there(opened.widget(ProcessTable).current).row.ordinal == 1


async def test_t_and_enter_on_a_process_say_whose_samples_count(opened: OpenDashboard) -> None:
    await opened.press("2", "t")
    await opened.snapshot(lambda snapshot: snapshot.view.scope == Selection(role="worker"))
    assert "workers · whole run · 8,000 samples" in opened.text(TabLine)
    assert opened.widget(HotTable).rows[0].function == "elastic_deform"
    await opened.press("t")
    await opened.snapshot(lambda snapshot: snapshot.view.scope == Selection())
    assert "all threads · whole run" in opened.text(TabLine)
    assert "16,000 samples" in opened.text(TabLine)
    await opened.press("t")
    await opened.snapshot(lambda snapshot: snapshot.view.scope == MAIN_THREADS)
    await opened.press("4", "down", "down", "enter")
    await opened.snapshot(lambda snapshot: snapshot.view.scope.processes == frozenset({2}))
    assert "worker 1 · pid 4243" in opened.text(TabLine)
    assert opened.widget(HotTable).rows[0].function == "elastic_deform"


async def test_a_live_run_grows_on_the_screen_unless_p_holds_it_and_says_when_it_ends(
    tmp_path: Path,
) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        async with open_dashboard(run.path) as opened:
            assert "●" in opened.text(Header)
            assert "live ▶" in opened.text(Timeline)
            await opened.press("p")
            assert "❚❚   train.py   paused" in opened.text(Header)
            run.advance(4)
            await opened.press("p")
            await opened.snapshot(lambda snapshot: snapshot.samples == 700)
            assert "paused" not in opened.text(Header)
            assert "700 samples" in opened.text(TabLine)
            run.end(exit_signal=9)
            await opened.snapshot(lambda snapshot: snapshot.info.state == "ended")
            assert "■   train.py   ended by SIGKILL" in opened.text(Header)
            assert opened.notices() == ["the run has come to its end: ended by SIGKILL"]


async def test_rows_keep_their_places_while_the_cursor_is_among_them(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        async with open_dashboard(run.path) as opened:
            table = opened.widget(HotTable)
            await opened.press("2", "down", "down")
            before = [row.function for row in table.rows]
            assert "rows hold their places" in opened.text(TabLine)
            train_backward(run, seconds=20)
            await opened.snapshot(
                lambda snapshot: (
                    [row.function for row in snapshot.functions[:1]] == ["_engine_run_backward"]
                )
            )
            assert [row.function for row in table.rows][: len(before)] == before
            assert there(table.current).function == before[1]
            await opened.press("escape")
            assert table.rows[0].function == "_engine_run_backward"
            assert not table.has_cursor


def test_a_file_that_cannot_be_read_at_all_is_an_error_before_anything_is_drawn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.profd").write_bytes(b"text")
    with pytest.raises(RunUnreadable):
        run_dashboard(tmp_path / "a.profd")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("where", ["feed", "screen"])
async def test_a_dashboard_that_needs_too_much_memory_ends_and_says_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    def need_more(*_: object) -> None:
        raise error

    monkeypatch.setattr(
        *{"feed": (RunModel, "snapshot"), "screen": (Dashboard, "_show_table")}[where], need_more
    )
    dashboard = ProfdApp(synthetic.write_run(tmp_path / "a.profd", seconds=1))
    async with dashboard.run_test():
        await eventually(lambda: dashboard.has_run_out, "the end of it")
    assert dashboard._exit_renderables == []


def test_the_memory_of_a_dashboard_is_bounded_by_the_size_of_its_run_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, bounds = resource.getrlimit(resource.RLIMIT_DATA), list[int]()

    def run(app: ProfdApp) -> None:
        bounds.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
        path.write_bytes(path.read_bytes() + b"x" * (1 << 20))
        there(app.feed._bound).renew()
        bounds.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
        app.has_run_out = True

    path = synthetic.write_run(tmp_path / "a.profd", seconds=1)
    monkeypatch.setattr(ProfdApp, "run", run)
    with pytest.raises(RunUnreadable, match="more than its size accounts for"):
        run_dashboard(path)
    assert bounds[1] - bounds[0] == 64 << 20
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


async def test_a_recorder_that_is_killed_is_said_to_be_gone(tmp_path: Path) -> None:
    recorder = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = msgspec.structs.replace(
        synthetic.run_started(live=True), recorder=synthetic.identity_of(recorder.pid)
    )
    synthetic.write_records(tmp_path / "a.profd", (), started)
    try:
        async with open_dashboard(tmp_path / "a.profd") as opened:
            assert "●" in opened.text(Header)
            os.kill(recorder.pid, signal.SIGKILL)
            await opened.snapshot(lambda snapshot: snapshot.info.state == "interrupted")
            assert "recording broke off: profd itself was ended" in opened.text(Header)
            assert "live" not in opened.text(Timeline)
            assert opened.notices() == ["profd's recorder was ended; all it wrote is kept"]
    finally:
        recorder.communicate()


async def test_a_run_without_samples_says_why(tmp_path: Path) -> None:
    at_ns = synthetic.STARTED_NS
    stopped = records.EventHappened(at_ns, EventKind.ERROR, "sampling stopped: no such process")
    found: list[records.Record] = [
        synthetic.main_process(),
        stopped,
        records.RunEnded(at_ns, "failed"),
    ]
    async with open_dashboard(synthetic.write_records(tmp_path / "a.profd", found)) as opened:
        assert "No samples: sampling stopped: no such process" in opened.text(VerdictLine)
        assert "recording failed" in opened.text(Header)
        (events,) = (
            segment for segment in opened.widget(TabLine).render_line(0) if "Events" in segment.text
        )
        assert there(events.style).color == opened.widget(TabLine).style_of("bad").color
    found[-1] = records.RunEnded(at_ns, "duration")
    async with open_dashboard(synthetic.write_records(tmp_path / "b.profd", found)) as opened:
        assert "recording ended" in opened.text(Header)


async def test_a_file_that_breaks_under_any_tab_gives_that_screen(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path) as opened:
            for tab in range(1, 8):
                await opened.press(str(tab), "down")
            with contextlib.closing(sqlite3.connect(run.path)) as other, other:
                other.execute("DROP TABLE recording")
            await opened.until(FeedFailed)
            screen = opened.top()
            assert isinstance(screen, FailureScreen)
            assert "no such table" in screen.error.what
            assert screen.error.remedy
            await opened.press("q")
    assert opened.app.return_value is Leaving.END


async def test_the_key_for_the_shell_says_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "has_shell", lambda: False)
    async with open_dashboard(
        write_case(tmp_path / "a.profd", *[HEALTHY] * 2, seconds=2)
    ) as opened:
        await opened.press("ctrl+z")
        await opened.until_notice("there is no shell")
