"""Every key is named where people look for keys, and does the same by its other names and by a click on its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from textual.binding import Binding
from theater import play

from profd.tui.app import ProfdApp
from profd.tui.screens import help as sheet
from profd.tui.screens.dashboard import Dashboard
from profd.tui.screens.goto import GotoScreen
from profd.tui.screens.help import HelpScreen
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.keys import KeyLine
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Scrubbed, Timeline

NAMES = {
    "slash": "/",
    "question_mark": "?",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "shift+left": "shift",
    "shift+right": "shift",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "plus": "+",
    "minus": "-",
    "enter": "⏎",
    "backspace": "⌫",
    "escape": "esc",
    "ctrl+c": "q",
    "pageup": "pgup",
    "pagedown": "pgdn",
}
"""How keys are called on the sheet, where not by their own names."""


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=64)


def bindings() -> Iterator[Binding]:
    for kind in (ProfdApp, *Dashboard.__mro__, FlameView):
        own = kind.__dict__.get("BINDINGS", ()) if kind.__module__.startswith("profd.") else ()
        yield from (binding for binding in own if isinstance(binding, Binding) and binding.action != "help")


@pytest.mark.parametrize("binding", list(bindings()), ids=lambda binding: binding.action)
def test_every_key_is_on_the_sheet(binding: Binding) -> None:
    key = binding.key.split(",")[0]
    lines = [*sheet.KEYS, *sheet.LEAVING]
    named = {
        word for keys, meaning in lines for word in f"{keys} {meaning}".replace(",", " ").replace(";", " ").split()
    }
    if key.isdigit():
        assert "1" in named
        assert "7" in named
    else:
        assert NAMES.get(key, key) in named


@pytest.mark.parametrize("key", ["escape", "question_mark", "q", "enter", "space"])
async def test_the_sheet_shows_all_it_has_and_any_usual_key_closes_it(ended: Path, key: str) -> None:
    async with play(ended, size=(120, 60)) as theater:
        await theater.press("question_mark")
        assert isinstance(theater.top(), HelpScreen)
        shown = theater.app.export_screenshot().replace("&#160;", " ")
        for part in ("go to a time", "export what is looked at", "leave, and let the recording go on"):
            assert part in shown
        await theater.press(key)
        assert theater.top() is theater.dashboard


@pytest.mark.parametrize(
    ("key", "other"),
    [("left", "comma"), ("shift+left", "less_than_sign"), ("right", "full_stop"), ("shift+right", "greater_than_sign")],
)
async def test_time_has_keys_for_terminals_without_arrows(ended: Path, key: str, other: str) -> None:
    async with play(ended) as theater:
        await theater.press("left", *["shift+left"] * 2)
        start = theater.widget(Timeline).scrub
        await theater.press(key)
        by_arrow = theater.widget(Timeline).scrub
        assert by_arrow != start
        await theater.press("escape", "left", *["shift+left"] * 2)
        assert theater.widget(Timeline).scrub == start
        await theater.press(other)
        assert (await theater.until(Scrubbed, lambda message: message.scrub == by_arrow)).scrub == by_arrow


async def test_a_range_without_a_cursor_is_that_of_the_newest_column(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("left_square_bracket")
        scrub = theater.widget(Timeline).scrub
        assert scrub.chosen is not None
        assert (scrub.chosen.from_ns - synthetic.STARTED_NS) / 1e9 == 63
        await theater.snapshot(lambda found: found.samples == 100)


async def test_g_takes_a_time_of_day(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("g")
        assert isinstance(theater.top(), GotoScreen)
        await theater.press(*"12:00:30", "enter")
        await theater.snapshot(lambda found: found.view.chosen is not None)
        assert "12:00:30" in theater.text(TabLine)


async def test_a_click_on_a_key_is_as_good_as_the_key(ended: Path) -> None:
    async with play(ended) as theater:
        at = theater.text(KeyLine).index("? help")
        await theater.click(KeyLine, (at, 0), lambda: isinstance(theater.top(), HelpScreen))
