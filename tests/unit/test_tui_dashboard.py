"""Every key of the dashboard, by what it changes on the screen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic
from theater import Theater, play, train_backward

from profd.daemon.store.writer import RunWriter
from profd.tui.leaving import Leaving
from profd.tui.reading.feed import OutputDrawn
from profd.tui.screens.dashboard import Dashboard
from profd.tui.screens.help import HelpScreen
from profd.tui.view import ScopeKind
from profd.tui.widgets.events import EventTable
from profd.tui.widgets.header import Header
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline
from profd.tui.widgets.tree import ProcessTable
from profd.tui.widgets.verdict import VerdictLine


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=40)


async def test_the_screen_says_what_where_and_how_well(ended: Path) -> None:
    async with play(ended) as theater:
        header = theater.text(Header)
        for part in ("ended with 0", "train.py", "pid 4242 + 2 workers", "00:00:40", "100.0 % covered", "cost 4.1 %"):
            assert part in header
        await theater.until_text(VerdictLine, "INPUT-BOUND")
        verdict = theater.text(VerdictLine)
        assert "▲ INPUT-BOUND  the main thread waits 40 % for its data (train.py:58); both workers are 100 %" in verdict
        assert "main threads · whole run" in theater.text(TabLine)
        assert "4,000 samples" in theater.text(TabLine)


async def test_the_timeline_has_phases_gauges_and_times(ended: Path) -> None:
    async with play(ended) as theater:
        timeline = theater.text(Timeline)

    for part in ("D data wait    40 %", "F forward      20 %", "S synchronize   4 %", "254 %    mean", "1.5 GB peak"):
        assert part in timeline
    assert ":00:10" in timeline.splitlines()[-1]


async def test_hot_functions_show_shares_place_and_line(ended: Path) -> None:
    async with play(ended) as theater:
        lines = theater.text(HotTable).splitlines()

    assert lines[0].split() == ["self", "▾", "total", "function", "where", "line"]
    assert lines[1].split()[:2] == ["40.0", "%"]
    assert "Condition.wait" in lines[1]
    (user,) = [line for line in lines if "train_epoch " in line]
    assert "4.0 %" in user
    assert "100.0 %" in user
    assert "train.py:58" in user
    assert "for images, labels in loader:" in user


async def test_the_number_keys_open_the_tabs(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("3")
        assert "elastic_deform" in theater.text(ProcessTable)
        assert "└ worker 2" in theater.text(ProcessTable)
        await theater.press("6")
        assert "python train.py --epochs 2" in theater.text(EventTable)
        assert "2 events" in theater.text(TabLine)
        await theater.press("1")
        assert theater.app.focused is theater.widget(HotTable)


async def test_the_output_is_drawn_when_it_is_opened(ended: Path) -> None:
    async with play(ended) as theater:
        assert theater.text(OutputPane).strip() == ""
        await theater.press("7")
        await theater.until_text(OutputPane, "39%|")
        assert "accuracy 0.41" in theater.text(OutputPane)


async def test_a_script_without_output_is_said_to_have_none(tmp_path: Path) -> None:
    started = msgspec.structs.replace(synthetic.run_started(), mode="attached")
    writer = RunWriter(tmp_path / "a.profd", started, synthetic.describe)
    writer.close()
    async with play(tmp_path / "a.profd") as theater:
        await theater.press("7")
        await theater.until(OutputDrawn)
        assert "it writes to a terminal of its own" in theater.text(OutputPane)


async def test_o_orders_by_total_and_back(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("o")
        assert [row.total_share for row in theater.widget(HotTable).rows[:3]] == [1, 1, 1]
        assert "total ▾" in theater.text(HotTable)
        await theater.press("o")
        assert theater.widget(HotTable).rows[0].function == "Condition.wait"


async def test_l_shows_lines_and_functions_again(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("down", "l")
        await theater.snapshot(lambda snapshot: snapshot.view.by_line)
        table = theater.widget(HotTable)
        assert not table.has_cursor
        lines = [row for row in table.rows if row.function == "train_epoch"]
        assert len(lines) > 1
        assert sum(row.total_share for row in lines) == pytest.approx(1)
        assert "for images, labels in loader:" in theater.text(HotTable)
        await theater.press("l")
        await theater.snapshot(lambda snapshot: not snapshot.view.by_line)
        assert len([row for row in table.rows if row.function == "train_epoch"]) == 1


async def test_a_click_on_a_title_orders_by_its_column(ended: Path) -> None:
    async with play(ended) as theater:
        table = theater.widget(HotTable)
        await theater.press("down")
        chosen = table.current
        await theater.click(HotTable, (theater.text(HotTable).index("total"), 0), lambda: table.sorted_by == "total")
        assert [row.total_share for row in table.rows[:3]] == [1, 1, 1]
        assert table.current == chosen
        await theater.click(HotTable, (theater.text(HotTable).index("where"), 0))
        assert table.sorted_by == "total"


async def test_an_order_that_is_asked_for_takes_the_cursor_with_its_row(ended: Path) -> None:
    async with play(ended) as theater:
        table = theater.widget(HotTable)
        await theater.press("down")
        assert table.current is not None
        await theater.press("o")
        assert table.current.function == "Condition.wait"
        assert table.rows[0].function != "Condition.wait"


async def test_t_counts_main_threads_then_all_then_one_process(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("t")
        await theater.snapshot(lambda snapshot: snapshot.view.scope.kind is ScopeKind.ALL)
        assert "all threads · whole run" in theater.text(TabLine)
        assert "16,000 samples" in theater.text(TabLine)
        await theater.press("t")
        await theater.snapshot(lambda snapshot: snapshot.view.scope.kind is ScopeKind.PROCESS)
        assert "main · pid 4242" in theater.text(TabLine)
        await theater.press("t")
        await theater.snapshot(lambda snapshot: snapshot.view.scope.kind is ScopeKind.MAIN)


async def test_enter_on_a_process_shows_its_functions(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("3", "down", "down", "enter")
        await theater.snapshot(lambda snapshot: snapshot.view.scope.process == 2)
        assert "worker 1 · pid 4243" in theater.text(TabLine)
        assert theater.widget(HotTable).rows[0].function == "elastic_deform"


async def test_slash_keeps_the_rows_with_a_word_and_escape_brings_all_back(ended: Path) -> None:
    async with play(ended) as theater:
        every = len(theater.widget(HotTable).rows)
        await theater.press("slash", *"LOADER")
        assert 0 < len(theater.widget(HotTable).rows) < every
        await theater.press("enter")
        assert theater.app.focused is theater.widget(HotTable)
        assert 0 < len(theater.widget(HotTable).rows) < every
        await theater.press("escape")
        assert len(theater.widget(HotTable).rows) == every


async def test_a_filter_takes_q_for_a_letter_and_escape_ends_it(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("slash", "q", "z")
        assert "Nothing here has" in theater.text(HotTable)
        await theater.press("escape")
        assert "Condition.wait" in theater.text(HotTable)


async def test_p_holds_the_view_and_lets_it_go(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        async with play(run.path) as theater:
            await theater.press("p")
            assert "❚❚   train.py   paused" in theater.text(Header)
            run.advance(2)
            await theater.press("p")
            await theater.snapshot(lambda snapshot: snapshot.samples == 500)
            assert "paused" not in theater.text(Header)


async def test_a_live_run_grows_on_the_screen_and_says_when_it_ends(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        async with play(run.path) as theater:
            assert "●" in theater.text(Header)
            assert "live ▶" in theater.text(Timeline)
            run.advance(4)
            await theater.snapshot(lambda snapshot: snapshot.samples == 700)
            assert "700 samples" in theater.text(TabLine)
            run.end(exit_signal=9)
            await theater.snapshot(lambda snapshot: snapshot.info.state == "ended")
            assert "■   train.py   ended by SIGKILL" in theater.text(Header)
            assert theater.notices() == ["the run has come to its end: ended by SIGKILL"]


async def test_rows_keep_their_places_while_the_cursor_is_among_them(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        async with play(run.path) as theater:
            table = theater.widget(HotTable)
            await theater.press("down", "down")
            before = [row.function for row in table.rows]
            assert "rows hold their places" in theater.text(TabLine)
            train_backward(run, seconds=20)
            await theater.snapshot(lambda snapshot: snapshot.functions[0].function == "_engine_run_backward")
            assert [row.function for row in table.rows][: len(before)] == before
            assert table.current is not None
            assert table.current.function == before[1]
            await theater.press("escape")
            assert table.rows[0].function == "_engine_run_backward"
            assert not table.has_cursor


async def test_question_mark_shows_the_keys_and_escape_hides_them(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("question_mark")
        assert isinstance(theater.top(), HelpScreen)
        await theater.press("escape")
        assert isinstance(theater.top(), Dashboard)


async def test_r_writes_the_report_and_says_where(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with play(ended) as theater:
        await theater.press("r")
        await theater.until_notice(str(tmp_path / "a.html"))
    assert (tmp_path / "a.html").stat().st_size > 1000


async def test_a_report_that_cannot_be_written_is_told(
    ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.html").mkdir()
    monkeypatch.chdir(tmp_path)
    async with play(ended) as theater:
        await theater.press("r")
        await theater.until_notice("cannot write")


@pytest.mark.parametrize(
    ("key", "leaving"), [("q", Leaving.END), ("b", Leaving.KEEP), ("ctrl+c", Leaving.END), ("ctrl+q", Leaving.END)]
)
async def test_keys_that_leave_do_so_at_once_when_nothing_is_recorded(ended: Path, key: str, leaving: Leaving) -> None:
    async with play(ended) as theater:
        await theater.press(key)
    assert theater.app.return_value is leaving


async def test_the_command_palette_has_what_the_keys_do(ended: Path) -> None:
    async with play(ended) as theater:
        offered = {command.title: command for command in theater.app.get_system_commands(theater.dashboard)}
        offered["Processes"].callback()
        await theater.pilot.pause()
        assert "worker 1" in theater.text(ProcessTable)
        await theater.press("ctrl+p")
        assert theater.app.screen is not theater.dashboard
        await theater.press("escape")
        assert theater.app.screen is theater.dashboard


def is_open(theater: Theater, tab: str) -> bool:
    return theater.widget(TabLine).tab == tab


async def test_tabs_and_rows_can_be_clicked_on(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.click(TabLine, (18, 0), lambda: is_open(theater, "processes"))
        await theater.until_text(ProcessTable, "worker")
        table = theater.widget(ProcessTable)
        await theater.click(ProcessTable, (5, 2), lambda: table.current is not None and table.current.row.ordinal == 1)
