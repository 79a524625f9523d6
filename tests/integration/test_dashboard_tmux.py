"""The dashboard in a real terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.faultscenes import STEPPING, Page
from support.launches import PROFD
from support.terminal import Terminal
from support.waiting import until

from profd.daemon.errors import ExitCode

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
    terminal.wait_for("Condition.wait", "D data")

    for columns, lines in ((80, 24), (20, 5), (200, 60)):
        terminal.resize(columns, lines)
        assert "Traceback" not in terminal.wait_for("train.py")
    terminal.wait_for("_MultiProcessingDataLoaderIter._next_data")
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
