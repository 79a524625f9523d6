"""The command palette: each of its commands, by the view that it opens, what it asks, or the message that it brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from textual.command import CommandPalette
from textual.message import Message
from textual.widgets import OptionList
from theater import Theater, play

from profd.tui.errands.outcomes import ErrandFailed, ReportWritten, WindowRefused
from profd.tui.leaving import Leaving
from profd.tui.reading.exhibits import FlameGrown
from profd.tui.screens.asking import ChoiceScreen, LineScreen
from profd.tui.screens.goto import GotoScreen
from profd.tui.screens.help import HelpScreen
from profd.tui.screens.leaving import LeavingScreen
from profd.tui.view import ScopeKind
from profd.tui.widgets.header import Header
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline

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
    "Report": ReportWritten,
    # Nobody records this run, and its target is made up: that is said.
    "Window": WindowRefused,
    "Dump": ErrandFailed,
    "Sample more often": ErrandFailed,
    "Sample less often": ErrandFailed,
}
OTHERS = {"Theme", "Lines", "Threads", "Zoom in", "Zoom out", "Live", "Pause", "Background"}


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a run that counts as recorded, though its session cannot be reached; files are written beside it."""
    monkeypatch.chdir(tmp_path)
    with synthetic.live_run(tmp_path / "a.profd", seconds=64) as run:
        yield run.path


def choose(theater: Theater, title: str) -> None:
    """Do what a command of the palette does."""
    commands = {command.title: command for command in theater.app.get_system_commands(theater.dashboard)}
    theater.app.call_later(commands[title].callback)


async def test_it_has_these_commands(live: Path) -> None:
    async with play(live) as theater:
        titles = [command.title for command in theater.app.get_system_commands(theater.dashboard)]
    assert len(titles) == len(set(titles))
    assert set(titles) == {*VIEWS, *QUESTIONS, *ANSWERS, *OTHERS}


async def test_its_commands_open_the_views(live: Path) -> None:
    async with play(live) as theater:
        for title, tab in VIEWS.items():
            choose(theater, title)
            await theater.pilot.pause()
            assert theater.widget(TabLine).tab == tab, title
            assert theater.dashboard.query_one(f"#{tab}").display, title


async def test_its_commands_ask_what_the_keys_ask(live: Path) -> None:
    async with play(live) as theater:
        for title, kind in QUESTIONS.items():
            choose(theater, title)
            await theater.pilot.pause()
            assert isinstance(theater.top(), kind), title
            await theater.press("escape")
            assert theater.top() is theater.dashboard, title


async def test_its_commands_bring_what_the_keys_bring(live: Path) -> None:
    async with play(live) as theater:
        for title, kind in ANSWERS.items():
            choose(theater, title)
            await theater.until(kind)
    assert live.with_suffix(".html").exists()


async def test_its_commands_change_what_is_looked_at(live: Path) -> None:
    async with play(live) as theater:
        choose(theater, "Threads")
        await theater.snapshot(lambda found: found.view.scope.kind is ScopeKind.ALL)
        choose(theater, "Zoom in")
        await theater.snapshot(lambda found: found.view.span_ns is not None)
        choose(theater, "Zoom out")
        await theater.snapshot(lambda found: found.view.span_ns is None)
        await theater.press("left")
        assert not theater.widget(Timeline).scrub.is_live
        choose(theater, "Live")
        await theater.snapshot(lambda found: found.view.chosen is None)
        choose(theater, "Pause")
        await theater.pilot.pause()
        assert "paused" in theater.text(Header)


async def test_its_background_leaves_and_keeps(live: Path) -> None:
    async with play(live) as theater:
        choose(theater, "Background")
        await theater.pilot.pause()
    assert theater.app.return_value is Leaving.KEEP


async def test_a_command_is_found_by_what_is_typed(live: Path) -> None:
    async with play(live) as theater:
        await theater.press("ctrl+p")
        palette = theater.top()
        assert isinstance(palette, CommandPalette)
        await theater.press(*"flame gr")
        found = palette.query_one(OptionList)
        while [str(option.prompt).splitlines()[0] for option in found.options] != ["Flame graph"]:
            await theater.until(Message)
        await theater.press("enter")
        await theater.until(FlameGrown)
        assert theater.widget(TabLine).tab == "flame"
