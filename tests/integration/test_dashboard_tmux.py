"""The dashboard in a real terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support import synthetic
from support.faultscenes import STEPPING, Page
from support.launches import PROFD
from support.terminal import Terminal
from support.waiting import until

from profd.daemon.errors import ExitCode

LIGHT = "48;5;231m"
"""The background of the light theme, in 256 colors."""
pytestmark = pytest.mark.requires("tmux")


@pytest.fixture
def terminal(profd_home: Path) -> Iterator[Terminal]:
    """Give a terminal of 120 by 36, in the home of profd's that the test has: its path is short
    enough for a socket.
    """
    with Terminal(profd_home) as terminal:
        yield terminal


def test_it_follows_the_size_of_a_light_terminal_without_colors_and_writes_nothing_to_stdout(
    terminal: Terminal, tmp_path: Path
) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", seconds=40)
    environment = {"NO_COLOR": "1", "TERM": "xterm", "COLORFGBG": "0;15"}
    terminal.start(["sh", "-c", f"exec {PROFD} view {run} >{tmp_path}/stdout"], environment)
    terminal.wait_for("train.py:58", "D data")

    for columns, lines in ((80, 24), (20, 5), (200, 60)):
        terminal.resize(columns, lines)
        assert "Traceback" not in terminal.wait_for("train.py")
    terminal.wait_for("for images, labels in loader:")
    terminal.press("C-c")
    assert terminal.wait_ended() == ExitCode.OK
    assert (tmp_path / "stdout").read_bytes() == b""


@pytest.mark.usefixtures("py_spy")
def test_ctrl_z_gives_the_shell_and_the_script_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    script = [sys.executable, "-S", "-c", STEPPING, str(page.path)]
    terminal.start([PROFD, "run", "--", *script])
    terminal.wait_for("live ▶")
    terminal.press("C-z")
    until(lambda: not terminal.uses_alternate_screen(), "the shell's screen")
    terminal.wait_for("Stopped")
    page.make_steps()
    until(lambda: page.is_at_goal, "the steps")

    terminal.type("fg")
    terminal.press("Enter")
    until(terminal.uses_alternate_screen, "the dashboard")
    page.make_steps()
    until(lambda: page.is_at_goal, "the steps")
    page.end()
    terminal.wait_for("ended with 3")
    terminal.press("q")
    until(lambda: not terminal.uses_alternate_screen(), "the shell's screen")
    terminal.wait_for("python ended with 3 after")


@pytest.mark.usefixtures("py_spy")
def test_ctrl_c_stops_the_script_by_what_it_asks_for_and_kills_only_if_told(
    terminal: Terminal, tmp_path: Path
) -> None:
    page = Page(tmp_path / "page")
    script = [sys.executable, "-S", "-c", STEPPING, str(page.path)]
    terminal.start([PROFD, "run", "--", *script])
    terminal.wait_for("live ▶")
    for number in (signal.SIGINT, signal.SIGTERM):
        terminal.press("C-c", "C-c")
        terminal.wait_for(f"the script has been sent {number.name}")
        until(partial(page.signals, number), "the signal")
    terminal.press("q")
    terminal.wait_for("kill the script")
    terminal.press("s")
    terminal.wait_for("ended by SIGKILL")
    terminal.press("q")
    assert terminal.wait_ended() == 128 + signal.SIGKILL


def test_the_theme_follows_the_background_that_the_terminal_tells(
    terminal: Terminal, tmp_path: Path
) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", seconds=40)
    terminal.set_background("#fafafa")
    terminal.start([PROFD, "view", run])
    terminal.wait_for("train.py:58")
    until(lambda: LIGHT in terminal.colors(), terminal.colors)
