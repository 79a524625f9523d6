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

from profd.daemon.analyze.selection import Selection
from profd.tui.actions import ActionDone, ActionFailed
from profd.tui.dialogs import ChoiceScreen, GotoScreen, HelpScreen, Leaving, LeavingScreen, LineScreen
from profd.tui.feed import FlameGrown
from profd.tui.widgets.header import Header
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline

pytestmark = pytest.mark.dashboard
VIEWS = {
    "Hot functions": "hot",
    "Flame graph": "flame",
    "Processes": "processes",
    "Torch operators": "torch",
    "Findings": "findings",
    "Events": "events",
    "Output": "output",
}
QUESTIONS: dict[str, type[object]] = {
    "Go to a time": GotoScreen,
    "Export": ChoiceScreen,
    "Mark": LineScreen,
    "Stop profiling": ChoiceScreen,
    "Keys": HelpScreen,
    "Leave": LeavingScreen,
}
ANSWERS: dict[str, type[Message]] = {
    "Report": ActionDone,
    # Nobody records this run, and its target is made up: that is said.
    "Window": ActionFailed,
    "Dump": ActionFailed,
    "Sample more often": ActionFailed,
    "Sample less often": ActionFailed,
}
OTHERS = {"Theme", "Lines", "Threads", "Zoom in", "Zoom out", "Live", "Pause", "Background"}


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a run that counts as recorded, though its session cannot be reached; files are written beside it."""
    monkeypatch.chdir(tmp_path)
    with synthetic.live_run(tmp_path / "a.profd", seconds=64) as run:
        yield run.path


def choose(opened: OpenDashboard, title: str) -> None:
    """Do what a command of the palette does."""
    commands = {command.title: command for command in opened.app.get_system_commands(opened.dashboard)}
    opened.app.call_later(commands[title].callback)


async def test_its_commands_open_the_views_and_ask_what_the_keys_ask(live: Path) -> None:
    async with open_dashboard(live) as opened:
        titles = [command.title for command in opened.app.get_system_commands(opened.dashboard)]
        assert len(titles) == len(set(titles))
        assert set(titles) == {*VIEWS, *QUESTIONS, *ANSWERS, *OTHERS}

        for title, tab in VIEWS.items():
            choose(opened, title)
            await opened.settle()
            assert opened.widget(TabLine).tab == tab, title
            assert opened.dashboard.query_one(f"#{tab}").display, title
        for title, kind in QUESTIONS.items():
            choose(opened, title)
            await opened.settle()
            assert isinstance(opened.top(), kind), title
            await opened.press("escape")
            assert opened.top() is opened.dashboard, title


async def test_its_commands_bring_what_the_keys_bring_and_change_what_is_looked_at(live: Path) -> None:
    async with open_dashboard(live) as opened:
        for title, kind in ANSWERS.items():
            choose(opened, title)
            await opened.until(kind)
        assert live.with_suffix(".html").exists()

        choose(opened, "Threads")
        await opened.snapshot(lambda found: found.view.scope == Selection())
        choose(opened, "Zoom in")
        await opened.snapshot(lambda found: found.view.span_ns is not None)
        choose(opened, "Zoom out")
        await opened.snapshot(lambda found: found.view.span_ns is None)
        await opened.press("left")
        assert not opened.widget(Timeline).scrub.is_live
        choose(opened, "Live")
        await opened.snapshot(lambda found: found.view.chosen is None)
        choose(opened, "Pause")
        await opened.settle()
        assert "paused" in opened.text(Header)


async def test_a_command_is_found_by_what_is_typed(live: Path) -> None:
    async with open_dashboard(live) as opened:
        await opened.press("ctrl+p")
        assert isinstance(opened.top(), CommandPalette)
        await opened.press("escape")
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
