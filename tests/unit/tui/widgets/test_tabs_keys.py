"""Every key is named where people look for keys, and does the same by its other names and by a
click on its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from textual.binding import Binding
from textual.widgets import Input

from profd.tui.app import ProfdApp
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import HelpScreen
from profd.tui.feed import FlameGrown
from profd.tui.keys import HELP
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.tabs import KeyLine, TabLine
from profd.tui.widgets.timeline import Timeline

NAMES = {
    "slash": "/", "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]", "left": "←", "right": "→", "up": "↑", "down": "↓", "shift+left": "shift", "shift+right": "shift",
    "enter": "⏎", "f1": "?", "backspace": "⌫", "escape": "esc", "ctrl+c": "q", "pageup": "pgup", "pagedown": "pgdn",
}  # fmt: skip
"""How keys are called on the sheet, where not by their own names."""
ARROWS = {
    "left": "comma",
    "shift+left": "less_than_sign",
    "right": "full_stop",
    "shift+right": "greater_than_sign",
}


def bindings() -> Iterator[Binding]:
    for kind in (ProfdApp, *Dashboard.__mro__, FlameView):
        own = kind.__dict__.get("BINDINGS", ()) if kind.__module__.startswith("profd.") else ()
        every = (one if isinstance(one, Binding) else Binding(*one) for one in own)
        yield from (binding for binding in every if binding.action != "help")


@pytest.mark.parametrize("binding", list(bindings()), ids=lambda binding: binding.action)
def test_every_key_is_on_the_sheet(binding: Binding) -> None:
    key = binding.key.split(",")[0]
    named = {word.strip(",;") for line in HELP for text in line for word in text.split()}
    assert ({"1", "8"} if key.isdigit() else {NAMES.get(key, key)}) <= named


@pytest.mark.dashboard
async def test_the_sheet_shows_all_it_has_and_any_usual_key_closes_it(ended: Path) -> None:
    async with open_dashboard(ended, size=(120, 60)) as opened:
        for key in ("escape", "question_mark", "q", "enter", "space"):
            await opened.press("question_mark")
            assert isinstance(opened.top(), HelpScreen)
            shown = opened.app.export_screenshot().replace("&#160;", " ")
            for part in (
                "go to a time",
                "export what is looked at",
                "the script of profd run can be stopped",
            ):
                assert part in shown
            await opened.press(key)
            assert opened.top() is opened.dashboard
        at = opened.text(KeyLine).index("? help")
        await opened.click(KeyLine, (at, 0))
        assert isinstance(opened.top(), HelpScreen)


NAMED = {
    "1": {"⏎ stacks", "o order", "l startup", "t threads"},
    "2": {"o order", "t threads"},
    "3": {"t threads"},
    "4": {"⏎ functions"},
    "5": {"o order"},
    "6": {"⏎ proof", "pgdn more of it"},
    "7": {"⏎ whole text"},
    "8": set(),
}
"""The names that the line of keys has in some views only, by view."""
OF_LIVE = {"p pause", "d dump", "m mark"}


@pytest.mark.dashboard
@pytest.mark.parametrize("is_live", [True, False])
async def test_the_line_of_keys_has_those_that_do_something_in_the_open_view(
    tmp_path: Path, is_live: bool
) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", live=is_live)
    async with open_dashboard(run, size=(200, 60)) as opened:
        for key, wanted in NAMED.items():
            await opened.press(key)
            named = {" ".join(text.split()) for text in opened.text(KeyLine).split("  ")}
            of_live = (OF_LIVE | {"w window"} if key == "5" else OF_LIVE) if is_live else set()
            some = set[str]().union(*NAMED.values(), OF_LIVE, {"w window"})
            assert named & some == wanted | of_live
            assert {"/ filter", "←→ time", "[ ] range", "e export", "q leave"} <= named
        await opened.resize(80, 24)
        for key, wanted in NAMED.items():
            await opened.press(key)
            shown = opened.text(KeyLine)
            assert all(word in shown for word in wanted if word[0] in "⏎p")
            assert ("w window" in shown) is (is_live and key == "5")
        assert not opened.text(KeyLine).rstrip().endswith("…")
        assert opened.text(KeyLine).rstrip().endswith("? help  q leave")


@pytest.mark.dashboard
async def test_enter_means_the_first_row_before_there_is_a_cursor(opened: OpenDashboard) -> None:
    await opened.press("4", "enter")
    assert "main · pid 4242" in opened.text(TabLine)
    await opened.press("1")
    at = opened.text(KeyLine).index("⏎ stacks")
    await opened.click(KeyLine, (at, 0))
    await opened.until(FlameGrown)
    assert opened.dashboard.query_one("#filter", Input).value == "train.py:58"


@pytest.mark.dashboard
async def test_what_somebody_chose_has_a_line_of_its_own_where_there_is_no_room(
    opened: OpenDashboard,
) -> None:
    await opened.resize(80, 24)
    await opened.press("2")
    assert opened.widget(TabLine).size.height == 1
    await opened.press("4", "down", "down", "enter")
    assert "8 Output" in opened.text(TabLine).splitlines()[0]
    assert "worker 1 · pid 4243 · whole run · 4,000 samples" in opened.text(TabLine)
    await opened.resize(80, 12)
    assert opened.widget(TabLine).size.height == 1
    await opened.resize(160, 24)
    assert opened.widget(TabLine).size.height == 1
    assert "worker 1 · pid 4243 · whole run" in opened.text(TabLine)


@pytest.mark.dashboard
async def test_time_has_keys_for_terminals_without_arrows(opened: OpenDashboard) -> None:
    for key, other in ARROWS.items():
        await opened.press("escape", "left", *["shift+left"] * 2)
        start = opened.widget(Timeline).scrub
        await opened.press(key)
        by_arrow = opened.widget(Timeline).scrub
        assert by_arrow != start
        await opened.press("escape", "left", *["shift+left"] * 2)
        assert opened.widget(Timeline).scrub == start
        await opened.press(other)
        assert opened.widget(Timeline).scrub == by_arrow


@pytest.mark.dashboard
async def test_the_palette_has_the_colors(opened: OpenDashboard) -> None:
    await opened.press("ctrl+p", "escape")
    assert opened.top() is opened.dashboard
    titles = [command.title for command in opened.app.get_system_commands(opened.dashboard)]
    assert titles == ["Theme"]
