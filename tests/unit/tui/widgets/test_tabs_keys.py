"""Every key is named where people look for keys, and does the same by its other names and by a
click on its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.dashboard import OpenDashboard, open_dashboard
from textual.binding import Binding
from textual.command import CommandPalette
from textual.message import Message
from textual.widgets import OptionList

from profd.tui.app import ProfdApp
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import HelpScreen, Leaving
from profd.tui.feed import FlameGrown
from profd.tui.keys import COMMANDS, HELP
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.tabs import KeyLine, TabLine
from profd.tui.widgets.timeline import Timeline

NAMES = {
    "slash": "/", "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]", "plus": "+",
    "minus": "-", "left": "←", "right": "→", "up": "↑", "down": "↓", "shift+left": "shift", "shift+right": "shift",
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
                "leave, and let the recording go on",
            ):
                assert part in shown
            await opened.press(key)
            assert opened.top() is opened.dashboard
        at = opened.text(KeyLine).index("? help")
        await opened.click(KeyLine, (at, 0))
        assert isinstance(opened.top(), HelpScreen)


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


def choose(opened: OpenDashboard, title: str) -> None:
    commands = {
        command.title: command for command in opened.app.get_system_commands(opened.dashboard)
    }
    opened.app.call_later(commands[title].callback)


@pytest.mark.dashboard
async def test_each_command_has_an_action_and_the_one_without_a_key_goes_back_to_live(
    opened: OpenDashboard,
) -> None:
    titles = [command.title for command in opened.app.get_system_commands(opened.dashboard)]
    assert (
        sorted(set(titles))
        == sorted(titles)
        == sorted({"Theme", *(title for title, *_ in COMMANDS)})
    )
    for title, _, action in COMMANDS:
        namespace, _, name = action.partition("(")[0].rpartition(".")
        assert hasattr(opened.app if namespace else opened.dashboard, f"action_{name}"), title
    await opened.press("left")
    assert not opened.widget(Timeline).scrub.is_live
    choose(opened, "Live")
    await opened.snapshot(lambda found: found.view.chosen is None)


@pytest.mark.dashboard
async def test_a_command_is_found_by_what_is_typed(opened: OpenDashboard) -> None:
    await opened.press("ctrl+p", "escape")
    assert opened.top() is opened.dashboard
    await opened.press("ctrl+p")
    palette = opened.top()
    assert isinstance(palette, CommandPalette)
    await opened.press(*"flame gr")
    found = palette.query_one(OptionList)
    while [str(option.prompt).splitlines()[0] for option in found.options] != ["Flame graph"]:
        await opened.until(Message)
    await opened.press("enter")
    await opened.until(FlameGrown)
    assert opened.widget(TabLine).tab == "flame"
    choose(opened, "Background")
    await opened.settle()
    assert opened.app.return_value is Leaving.KEEP
