"""Typing to a launched script through the output pane."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from textual.events import Paste
from theater import play

from profd.daemon.store import records
from profd.tui.leaving import Leaving
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.tabs import TabLine


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    """Give both ends of a pseudo-terminal: profd's, and the script's, which takes keys one by one."""
    ours, scripts = os.openpty()
    attributes = termios.tcgetattr(scripts)
    attributes[0] = attributes[3] = 0
    termios.tcsetattr(scripts, termios.TCSANOW, attributes)
    yield ours, scripts
    os.close(ours)
    os.close(scripts)


async def test_keys_go_to_the_script_while_the_pane_is_focused(tmp_path: Path, pty: tuple[int, int]) -> None:
    ours, scripts = pty
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with play(run.path, pty_fd=ours) as theater:
            await theater.press("7")
            assert "⏎ types to the script" in theater.text(TabLine)
            await theater.press("enter", "q", "1", "ctrl+c", "enter", "up")
            theater.widget(OutputPane).post_message(Paste("a\nb"))
            await theater.pilot.pause()
            assert os.read(scripts, 100) == b"q1\x03\r\x1b[Aa\rb"
            assert "keys go to the script · esc comes back" in theater.text(TabLine)
            await theater.press("escape", "q", "e")
    assert theater.app.return_value is Leaving.END


@pytest.mark.parametrize(
    "way", [("7",), ("7", "tab"), ("7", "tab", "tab", "shift+tab"), ("7", "enter", "escape", "tab")]
)
async def test_a_stray_key_is_never_the_scripts(tmp_path: Path, pty: tuple[int, int], way: tuple[str, ...]) -> None:
    ours, scripts = pty
    os.set_blocking(scripts, False)
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with play(run.path, pty_fd=ours) as theater:
            await theater.press(*way)
            await theater.press("q", "e")
    assert theater.app.return_value is Leaving.END
    with pytest.raises(BlockingIOError):
        os.read(scripts, 100)


async def test_the_echo_is_soon_seen(tmp_path: Path, pty: tuple[int, int]) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with play(run.path, pty_fd=pty[0]) as theater:
            await theater.press("7", "enter")
            run.writer.put(records.OutputWritten(run.started_ns, b"\r\n>>> hello"))
            await theater.until_text(OutputPane, ">>> hello")


async def test_the_script_is_told_the_size_of_the_pane(tmp_path: Path, pty: tuple[int, int]) -> None:
    ours, scripts = pty
    with synthetic.live_run(tmp_path / "a.profd", seconds=2) as run:
        async with play(run.path, pty_fd=ours) as theater:
            await theater.press("7")
            await theater.pilot.resize_terminal(100, 40)
            await theater.pilot.pause()
            size = theater.widget(OutputPane).size
            lines, columns = struct.unpack("4H", fcntl.ioctl(scripts, termios.TIOCGWINSZ, bytes(8)))[:2]
    assert (columns, lines) == (99, size.height)


async def test_without_a_terminal_of_the_scripts_keys_are_the_dashboards(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd")) as theater:
        await theater.press("7", "enter", "3")
        assert theater.widget(TabLine).tab == "processes"
        await theater.press("7", "enter", "ctrl+c")
    assert theater.app.return_value is Leaving.END
