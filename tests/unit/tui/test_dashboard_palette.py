"""The command palette: each of its commands, by the view that it opens, what it asks, or the message that it brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from textual.command import CommandPalette
from textual.message import Message
from textual.widgets import OptionList

from profd.tui.dialogs import Leaving
from profd.tui.feed import FlameGrown
from profd.tui.keys import COMMANDS
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline

pytestmark = pytest.mark.dashboard


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a run that counts as recorded, though its session cannot be reached; files are written beside it."""
    monkeypatch.chdir(tmp_path)
    with synthetic.live_run(tmp_path / "a.profd", seconds=64) as run:
        yield run.path


def choose(opened: OpenDashboard, title: str) -> None:
    commands = {command.title: command for command in opened.app.get_system_commands(opened.dashboard)}
    opened.app.call_later(commands[title].callback)


async def test_each_command_has_an_action_and_the_one_without_a_key_goes_back_to_live(live: Path) -> None:
    async with open_dashboard(live) as opened:
        titles = [command.title for command in opened.app.get_system_commands(opened.dashboard)]
        assert sorted(set(titles)) == sorted(titles) == sorted({"Theme", *(title for title, *_ in COMMANDS)})
        for title, _, action in COMMANDS:
            namespace, _, name = action.partition("(")[0].rpartition(".")
            assert hasattr(opened.app if namespace else opened.dashboard, f"action_{name}"), title
        await opened.press("left")
        assert not opened.widget(Timeline).scrub.is_live
        choose(opened, "Live")
        await opened.snapshot(lambda found: found.view.chosen is None)


async def test_a_command_is_found_by_what_is_typed(live: Path) -> None:
    async with open_dashboard(live) as opened:
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
