"""Typing to a launched script through the output pane."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import open_dashboard
from support.waiting import until
from textual.events import Paste

from profd.daemon.store import records
from profd.tui.dialogs import Leaving
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.tabs import TabLine

TYPED = b"q1\x03\r\x1b[Aa\rb"


def read_all(fd: int, size: int) -> bytes:
    """Read so many bytes: the kernel hands on what was written to a terminal when it comes to it,
    and in parts.
    """
    found = b""
    while len(found) < size:
        found += os.read(fd, size - len(found))
    return found


async def test_keys_go_to_the_script_while_the_pane_is_focused(
    tmp_path: Path, pty: tuple[int, int]
) -> None:
    ours, scripts = pty
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path, keys_fd=ours) as opened:
            await opened.press("8")
            assert "⏎ types to the script" in opened.text(TabLine)
            await opened.press("enter", "q", "1", "ctrl+c", "enter", "up")
            opened.widget(OutputPane).post_message(Paste("a\nb"))
            await opened.settle()
            assert read_all(scripts, len(TYPED)) == TYPED
            assert "keys go to the script · esc comes back" in opened.text(TabLine)
            await opened.press("escape", "q", "e")
    assert opened.app.return_value is Leaving.END


async def test_a_stray_key_is_never_the_scripts(
    tmp_path: Path, pty: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, scripts = pty
    os.set_blocking(scripts, False)
    left: list[Leaving] = []
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path, keys_fd=ours) as opened:
            monkeypatch.setattr(opened.app, "exit", left.append)
            for way in [
                ("8",),
                ("8", "tab"),
                ("8", "tab", "tab", "shift+tab"),
                ("8", "enter", "escape", "tab"),
            ]:
                await opened.press("2", *way)
                await opened.press("q", "e")
                assert left.pop() is Leaving.END
                with pytest.raises(BlockingIOError):
                    os.read(scripts, 100)


async def test_the_echo_is_shown_and_the_script_gets_the_size_of_the_pane(
    tmp_path: Path, pty: tuple[int, int]
) -> None:
    ours, scripts = pty
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path, keys_fd=ours) as opened:
            await opened.press("8", "enter")
            run.writer.put(records.OutputWritten(run.started_ns, b"\r\n>>> hello"))
            await opened.until_text(OutputPane, ">>> hello")
            await opened.resize(100, 40)
            size = opened.widget(OutputPane).size
            until(lambda: os.get_terminal_size(scripts) == (99, size.height), "the size")


async def test_without_a_terminal_of_the_scripts_keys_are_the_dashboards(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd")) as opened:
        await opened.press("8", "enter", "4")
        assert opened.widget(TabLine).tab == "processes"
        await opened.press("8", "enter", "ctrl+c")
    assert opened.app.return_value is Leaving.END


async def test_keys_belong_to_the_pane_from_the_moment_on_in_which_it_begins_to_type(
    tmp_path: Path, pty: tuple[int, int]
) -> None:
    """A message in between would give a key that comes first to the dashboard, or to the script."""
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with open_dashboard(run.path, keys_fd=pty[0]) as opened:
            await opened.press("8")
            pane = opened.widget(OutputPane)
            pane.start_typing()
            assert opened.app.focused is pane  # nothing was awaited
