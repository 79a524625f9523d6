"""Every view as a picture, at three sizes, in light colors and in none.

`pytest --snapshot-update` draws them anew.

Look at a picture that has changed, in a browser, before you keep it: nothing but eyes says whether
it is better than the old one.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from support.completerun import write_complete_run
from support.dashboard import open_dashboard
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from profd.tui.app import ProfdApp
from profd.tui.feed import FlameGrown, OperatorsRead, OutputDrawn

SIZES = {"80x24": (80, 24), "120x36": (120, 36), "200x60": (200, 60)}
VIEWS = ("lines", "hot", "flame", "processes", "torch", "findings", "events", "output")
READ_LATER = {"flame": FlameGrown, "torch": OperatorsRead, "output": OutputDrawn}
"""The message that brings what a view shows, where that is not read before it is opened."""


class HtmlExtension(SingleFileSnapshotExtension):
    """A file a picture."""

    _write_mode = WriteMode.TEXT
    file_extension = "html"


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_complete_run(tmp_path_factory.mktemp("complete") / "a.profd")


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw as a terminal of many colors in Greenwich does, wherever this runs."""
    for name in ("NO_COLOR", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def picture_of(app: ProfdApp) -> str:
    """Return the screen as HTML, a line each: Textual's own SVG has elements for every few cells,
    and sums in names.
    """
    width, height = app.size
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
    )
    console.print(app.screen._compositor.render_update(full=True))
    return console.export_html(theme=SVG_EXPORT_THEME, inline_styles=True)


async def changed(
    run_file: Path, views: Sequence[str], size: str, kept: SnapshotAssertion, folder: Path
) -> list[Path]:
    """Open views one after the other.

    Return those that are not as they are kept, written to where they can be seen.
    """
    html, found = kept.use_extension(HtmlExtension), []
    async with open_dashboard(run_file, size=SIZES[size]) as opened:
        for view in views:
            await opened.press(str(VIEWS.index(view) + 1))
            if view in READ_LATER:
                await opened.until(READ_LATER[view])
            picture = picture_of(opened.app)
            if picture != html(name=view):
                found.append(folder / f"{view}.html")
                found[-1].write_text(picture)
    return found


@pytest.mark.parametrize(
    "size",
    [
        size if size == "120x36" else pytest.param(size, marks=pytest.mark.dashboard)
        for size in SIZES
    ],
)
async def test_every_view_at_three_sizes(
    run_file: Path, tmp_path: Path, snapshot: SnapshotAssertion, size: str
) -> None:
    assert await changed(run_file, VIEWS, size, snapshot, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "value"), [("COLORFGBG", "0;15"), ("NO_COLOR", "1")], ids=["light", "colorless"]
)
async def test_in_light_colors_and_in_none(
    run_file: Path,
    tmp_path: Path,
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert await changed(run_file, ("lines", "flame"), "120x36", snapshot, tmp_path) == []
