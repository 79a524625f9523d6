"""What the keys of all tables do: moving, filtering, scrolling; by messages, and by what is on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from textual.widgets import Input

from profd.daemon.exports.formats import FORMATS
from profd.daemon.store import records
from profd.tui.actions import ActionDone, ActionFailed
from profd.tui.dialogs import ChoiceScreen
from profd.tui.feed import OutputDrawn
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.processes import EventTable, ProcessTable
from profd.tui.widgets.table import CursorMoved

WORKERS = 60
FILTERED: list[tuple[str, type[HotTable | ProcessTable | EventTable], str, str, str]] = [
    ("1", HotTable, "adam", "_single_tensor_adam", "Condition.wait"),
    ("3", ProcessTable, "worker 2", "└ worker 2", "└ worker 1"),
    ("6", EventTable, "ended", "ended", "started"),
]
"""Key, table, a word, what there has it and what has not."""


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=2)


async def ordinal_after(opened: OpenDashboard, *keys: str) -> int | None:
    """Press keys in the process tree, and return the number of the worker under the cursor: 0 is the main process."""
    await opened.press(*keys)
    await opened.until(CursorMoved)
    current = opened.widget(ProcessTable).current
    assert current is not None
    return current.row.ordinal or 0


async def test_the_cursor_goes_by_rows_by_pages_and_to_the_ends(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd", seconds=1, workers=WORKERS)) as opened:
        await opened.press("3")
        page = opened.widget(ProcessTable).size.height - 2
        assert await ordinal_after(opened, "down") == 0
        assert await ordinal_after(opened, "j", "j") == 2
        assert await ordinal_after(opened, "k") == 1
        assert await ordinal_after(opened, "pagedown") == 1 + page
        assert f"worker {1 + page}" in opened.text(ProcessTable)
        assert await ordinal_after(opened, "pageup") == 1
        assert await ordinal_after(opened, "end") == WORKERS
        assert f"worker {WORKERS}" in opened.text(ProcessTable)
        assert await ordinal_after(opened, "home") == 0
        assert f"worker {WORKERS}" not in opened.text(ProcessTable)


async def test_a_filter_keeps_the_rows_with_a_word_in_every_table(ended: Path) -> None:
    async with open_dashboard(ended) as opened:
        for key, kind, needle, kept, gone in FILTERED:
            await opened.press(key)
            assert gone in opened.text(kind)
            await opened.press("slash", *needle)
            assert opened.dashboard.query_one(Input).value == needle
            assert kept in opened.text(kind)
            assert gone not in opened.text(kind)
            await opened.press("enter")
            assert opened.app.focused is opened.widget(kind)
            await opened.press("escape")
            assert gone in opened.text(kind)


async def test_the_output_scrolls_by_pages_and_stays_where_it_was_scrolled_to(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=1) as run:
        run.writer.put(records.OutputWritten(run.started_ns, b"".join(b"\r\nline %d," % n for n in range(200))))
        run.advance()
        async with open_dashboard(run.path) as opened:
            await opened.press("7")
            await opened.until(OutputDrawn, lambda message: "line 198," in str(message.picture.lines))
            assert "line 198," in opened.text(OutputPane)
            await opened.press("pageup", "pageup")
            shown = opened.text(OutputPane)
            assert "line 198," not in shown
            run.writer.put(records.OutputWritten(run.started_ns, b"\r\nmore\r\n"))
            run.advance()
            await opened.until(OutputDrawn, lambda message: "more" in str(message.picture.lines))
            assert opened.text(OutputPane) == shown
            await opened.press("pagedown", "pagedown", "pagedown")
            assert "more" in opened.text(OutputPane)


@pytest.mark.dashboard
async def test_e_exports_in_every_format_or_says_why_not(
    ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_dashboard(ended) as opened:
        for downs, form in enumerate(FORMATS):
            await opened.press("e")
            assert isinstance(opened.top(), ChoiceScreen)
            await opened.press(*["down"] * downs, "enter")
            path = tmp_path / f"a{FORMATS[form].ending}"
            if form == "tensorboard":  # the run has no windows
                await opened.until(ActionFailed)
                assert not path.exists()
            else:
                done = await opened.until(ActionDone)
                assert (done.text, done.title) == (str(path), "Exported")
                assert path.stat().st_size > 100 or (path / f"processes.{form}").stat().st_size > 100

        (tmp_path / "a.svg").unlink()
        (tmp_path / "a.svg").mkdir()
        await opened.press("e", *["down"] * list(FORMATS).index("svg"), "enter")
        await opened.until_notice("cannot write")
