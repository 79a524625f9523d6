"""The dashboard in a real terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from terminal import Terminal

from profd.daemon.errors import ExitCode

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

    screen = terminal.wait_for("Condition.wait")
    assert "The main thread waits 40 % of its time for data, at train.py:58" in screen
    assert "4,000 samples" in screen
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
        terminal.wait_for("700 samples", deadline_s=5)

        run.end(exit_code=3)
        terminal.wait_for("ended with 3", deadline_s=5)
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


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "xterm"}, {"COLORFGBG": "0;15"}])
def test_it_opens_on_terminals_with_other_colors(
    terminal: Terminal, tmp_path: Path, environment: dict[str, str]
) -> None:
    terminal.start([*PROFD, "view", synthetic.write_run(tmp_path / "a.profd", seconds=40)], environment)

    assert "D data wait" in terminal.wait_for("Condition.wait")
    terminal.press("q")
    assert terminal.wait_ended() == ExitCode.OK


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


def test_its_output_is_on_the_terminal_and_not_on_stdout(terminal: Terminal, tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "a.profd")
    terminal.start(["sh", "-c", f"{sys.executable} -m profd view {run} >{tmp_path}/stdout"])
    terminal.wait_for("Condition.wait")
    terminal.press("q")

    assert terminal.wait_ended() == ExitCode.OK
    assert (tmp_path / "stdout").read_bytes() == b""
