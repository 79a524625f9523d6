"""The dashboard in a real terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import synthetic
from support.faultscenes import STEPPING, Page
from support.terminal import Terminal
from support.waiting import DEADLINE_S, until

from profd.daemon.errors import ExitCode
from profd.daemon.paths import find_run
from profd.daemon.store.reader import RunReader

pytestmark = pytest.mark.requires("tmux")
PROFD = (sys.executable, "-m", "profd")


@pytest.fixture
def terminal(profd_home: Path) -> Iterator[Terminal]:
    """Give a terminal of 120 by 36, in the home of profd's that the test has: its path is short enough for a socket."""
    with Terminal(profd_home) as terminal:
        yield terminal


def test_the_dashboard_shows_where_the_time_goes_and_leaves_on_q(terminal: Terminal, tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", seconds=40)
    before = terminal.modes()
    terminal.start([*PROFD, "view", run])

    terminal.wait_for(
        "Condition.wait", "40 % of the time the main thread waits for data, at train.py:58", "4,000 samples"
    )
    assert terminal.uses_alternate_screen()

    terminal.press("q")
    assert terminal.wait_ended() == ExitCode.OK
    assert not terminal.uses_alternate_screen()
    assert not terminal.takes_mouse()
    assert terminal.modes() == before


def test_a_growing_run_is_followed_and_its_end_is_told(terminal: Terminal, tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        terminal.start([*PROFD, "view", run.path])
        terminal.wait_for("300 samples")

        run.advance(4)
        terminal.wait_for("700 samples")

        run.end(exit_code=3)
        terminal.wait_for("ended with 3")
        terminal.press("b")
        assert terminal.wait_ended() == ExitCode.OK


def test_it_follows_the_size_of_the_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.start([*PROFD, "view", synthetic.write_run(tmp_path / "a.profd")])
    terminal.wait_for("Condition.wait")

    for columns, lines in ((80, 24), (20, 5), (200, 60)):
        terminal.resize(columns, lines)
        assert "Traceback" not in terminal.wait_for("train.py")
    terminal.wait_for("_MultiProcessingDataLoaderIter._next_data")
    terminal.press("C-c")
    assert terminal.wait_ended() == ExitCode.OK


def test_it_opens_on_a_light_terminal_without_colors_and_writes_nothing_to_stdout(
    terminal: Terminal, tmp_path: Path
) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", seconds=40)
    environment = {"NO_COLOR": "1", "TERM": "xterm", "COLORFGBG": "0;15"}
    terminal.start(["sh", "-c", f"{sys.executable} -m profd view {run} >{tmp_path}/stdout"], environment)

    terminal.wait_for("Condition.wait")
    terminal.wait_for("D data")
    terminal.press("q")
    assert terminal.wait_ended() == ExitCode.OK
    assert (tmp_path / "stdout").read_bytes() == b""


def test_what_cannot_be_shown_is_one_line_and_no_screen(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "a.profd").write_text("no run")
    terminal.start([*PROFD, "view", tmp_path / "a.profd"])

    assert terminal.wait_ended() == ExitCode.UNREADABLE_RUN
    assert "is no run file" in terminal.screen().replace("\n", "")
    assert "Traceback" not in terminal.screen()


def test_without_a_terminal_it_names_the_command_that_does_without(terminal: Terminal, tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "a.profd")
    terminal.start(["sh", "-c", f"{sys.executable} -m profd view {run} </dev/null"])

    assert terminal.wait_ended() == ExitCode.USAGE
    assert "profd summary" in terminal.screen().replace("\n", "")


@pytest.mark.usefixtures("py_spy")
def test_ctrl_z_gives_the_shell_and_the_script_goes_on(terminal: Terminal, profd_home: Path, tmp_path: Path) -> None:
    page = Page(tmp_path / "page")
    script = [sys.executable, "-S", "-c", STEPPING, str(page.path)]
    terminal.start([*PROFD, "run", "--", *script], {"PROFD_HOME": str(profd_home)})
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
def test_the_dashboard_of_a_killed_launcher_ends_and_leaves_its_screen(
    terminal: Terminal, profd_home: Path, tmp_path: Path
) -> None:
    page = Page(tmp_path / "page")
    script = [sys.executable, "-S", "-c", STEPPING, str(page.path)]
    terminal.start([*PROFD, "run", "--", *script], {"PROFD_HOME": str(profd_home)})
    terminal.wait_for("live ▶")
    with RunReader(find_run("latest")) as reader:
        recorder = psutil.Process(reader.info.recorder.pid)
    launcher = recorder.parent()
    assert launcher is not None
    (dashboard,) = (child for child in launcher.children() if "--pty-fd" in child.cmdline())
    dashboards = [dashboard, *dashboard.children()]
    relays = [child for child in launcher.children() if child.name() == "profd-relay"]

    launcher.kill()
    assert psutil.wait_procs(dashboards, timeout=DEADLINE_S)[1] == []
    until(lambda: not terminal.uses_alternate_screen() and not terminal.takes_mouse(), "the shell's screen")
    page.make_steps()
    until(lambda: page.is_at_goal, "the steps")
    page.end()
    assert psutil.wait_procs([recorder, *relays], timeout=DEADLINE_S)[1] == []
