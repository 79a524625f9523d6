"""What the keys of all tables do: moving, filtering, scrolling; by messages, and by what is on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from textual.widgets import Input
from theater import Theater, play

from profd.daemon.render.exports.formats import ENDINGS, FORMATS
from profd.daemon.store import records
from profd.tui.errands.outcomes import ErrandDone, ErrandFailed
from profd.tui.reading.feed import OutputDrawn
from profd.tui.screens.asking import ChoiceScreen
from profd.tui.widgets.events import EventTable
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.table import CursorMoved
from profd.tui.widgets.tree import ProcessTable

WORKERS = 60


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=2)


async def ordinal_after(theater: Theater, *keys: str) -> int | None:
    """Press keys in the process tree, and return the number of the worker under the cursor: 0 is the main process."""
    await theater.press(*keys)
    await theater.until(CursorMoved)
    current = theater.widget(ProcessTable).current
    assert current is not None
    return current.row.ordinal or 0


async def test_the_cursor_goes_by_rows_by_pages_and_to_the_ends(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd", seconds=1, workers=WORKERS)) as theater:
        await theater.press("3")
        page = theater.widget(ProcessTable).size.height - 2
        assert await ordinal_after(theater, "down") == 0
        assert await ordinal_after(theater, "j", "j") == 2
        assert await ordinal_after(theater, "k") == 1
        assert await ordinal_after(theater, "pagedown") == 1 + page
        assert f"worker {1 + page}" in theater.text(ProcessTable)
        assert await ordinal_after(theater, "pageup") == 1
        assert await ordinal_after(theater, "end") == WORKERS
        assert f"worker {WORKERS}" in theater.text(ProcessTable)
        assert await ordinal_after(theater, "home") == 0
        assert f"worker {WORKERS}" not in theater.text(ProcessTable)


@pytest.mark.parametrize(
    ("key", "kind", "needle", "kept", "gone"),
    [
        ("1", HotTable, "adam", "_single_tensor_adam", "Condition.wait"),
        ("3", ProcessTable, "worker 2", "└ worker 2", "└ worker 1"),
        ("6", EventTable, "ended", "ended", "started"),
    ],
)
async def test_a_filter_keeps_the_rows_with_a_word_in_every_table(
    ended: Path, key: str, kind: type[HotTable | ProcessTable | EventTable], needle: str, kept: str, gone: str
) -> None:
    async with play(ended) as theater:
        await theater.press(key)
        assert gone in theater.text(kind)
        await theater.press("slash")
        await theater.press(*needle)
        await theater.until(Input.Changed, lambda message: message.value == needle)
        assert kept in theater.text(kind)
        assert gone not in theater.text(kind)
        await theater.press("enter")
        await theater.until(Input.Submitted)
        assert theater.app.focused is theater.widget(kind)
        await theater.press("escape")
        assert gone in theater.text(kind)


async def test_the_output_scrolls_by_pages_and_stays_where_it_was_scrolled_to(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=1) as run:
        run.writer.put(records.OutputWritten(run.started_ns, b"".join(b"\r\nline %d," % n for n in range(200))))
        run.advance()
        async with play(run.path) as theater:
            await theater.snapshot(lambda snapshot: snapshot.is_diagnosed)  # the verdict may take a line more
            await theater.press("7")
            await theater.until(OutputDrawn, lambda message: "line 198," in str(message.picture.lines))
            assert "line 198," in theater.text(OutputPane)
            await theater.press("pageup", "pageup")
            shown = theater.text(OutputPane)
            assert "line 198," not in shown
            run.writer.put(records.OutputWritten(run.started_ns, b"\r\nmore\r\n"))
            run.advance()
            await theater.until(OutputDrawn, lambda message: "more" in str(message.picture.lines))
            assert theater.text(OutputPane) == shown
            await theater.press("pagedown", "pagedown", "pagedown")
            assert "more" in theater.text(OutputPane)


@pytest.mark.parametrize("form", FORMATS)
async def test_e_exports_in_every_format_or_says_why_not(
    ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with play(ended) as theater:
        await theater.press("e")
        assert isinstance(theater.top(), ChoiceScreen)
        await theater.press(*["down"] * list(FORMATS).index(form), "enter")
        path = tmp_path / f"a{ENDINGS[form]}"
        if form == "tensorboard":  # the run has no windows
            await theater.until(ErrandFailed)
            assert not path.exists()
        else:
            done = await theater.until(ErrandDone)
            assert (done.text, done.title) == (str(path), "Exported")
            assert path.exists()
