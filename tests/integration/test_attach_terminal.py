"""`profd attach` in a real terminal: hot functions within three seconds, changes followed, `q` leaves."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sessions import running
from terminal import Terminal
from watching import DEADLINE_S, recorded_until_ns, wait_until

from profd.cli.main import run_command_line
from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader

pytestmark = pytest.mark.requires("tmux")
PROFD = (sys.executable, "-m", "profd")
FIRST_SIGHT_S = 3.0


@pytest.fixture
def terminal(profd_home: Path) -> Iterator[Terminal]:
    with Terminal(profd_home) as terminal:
        yield terminal


def test_attach_shows_hot_functions_within_three_seconds_and_follows_changes(
    terminal: Terminal, profd_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running("switching.py") as target:
        started = time.monotonic()
        terminal.start([*PROFD, "attach", str(target.pid)], {"PROFD_HOME": str(profd_home)})
        screen = terminal.wait_for("before_the_line", deadline_s=FIRST_SIGHT_S + 10)
        took_s = time.monotonic() - started
        with capsys.disabled():
            print(f"\n  hot functions on the screen {took_s:.1f} s after the command was typed")
        assert "after_the_line" not in screen
        assert took_s <= FIRST_SIGHT_S

        assert target.stdin is not None
        target.stdin.write("\n")
        target.stdin.flush()
        terminal.wait_for("after_the_line", deadline_s=6)

        terminal.press("q")
        terminal.wait_for("keep recording in the background")
        terminal.press("e")
        assert terminal.wait_ended() == ExitCode.OK
        assert not terminal.uses_alternate_screen()
        assert "profd  switching.py" in terminal.screen()
        assert target.poll() is None
        with RunReader(paths.find_run("latest")) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "stopped")


def test_leaving_in_the_background_keeps_recording_and_view_comes_back(terminal: Terminal, profd_home: Path) -> None:
    environment = {"PROFD_HOME": str(profd_home)}
    with running("switching.py") as target:
        terminal.start([*PROFD, "attach", str(target.pid)], environment)
        terminal.wait_for("before_the_line")
        terminal.press("b")
        assert terminal.wait_ended() == ExitCode.OK
        assert "still recording" in terminal.screen()

        terminal.type("clear")
        terminal.press("Enter")
        terminal.start([*PROFD, "view", "latest"], environment)
        terminal.wait_for("before_the_line")
        terminal.press("q")
        terminal.wait_for("keep recording in the background")
        terminal.press("q")
        terminal.wait_ended()
        with RunReader(paths.find_run("latest")) as reader:
            assert reader.info.state == "live"

        terminal.type("clear")
        terminal.press("Enter")
        terminal.start([*PROFD, "stop", "latest"], environment)
        assert terminal.wait_ended() == ExitCode.OK
        assert target.poll() is None
        with RunReader(paths.find_run("latest")) as reader:
            assert reader.info.state == "ended"


def test_a_closed_terminal_ends_the_dashboard_and_not_the_recording(terminal: Terminal, profd_home: Path) -> None:
    # What a broken ssh does too: its end of the terminal is closed, and those on it get SIGHUP.
    with running("switching.py") as target:
        terminal.start([*PROFD, "attach", str(target.pid)], {"PROFD_HOME": str(profd_home)})
        terminal.wait_for("before_the_line")
        with RunReader(paths.find_run("latest")) as reader:
            recorder = psutil.Process(reader.info.recorder_pid)
        dashboard = recorder.parent()
        assert dashboard is not None
        shown_by = [dashboard, *(child for child in dashboard.children() if child != recorder)]
        assert len(shown_by) == 2  # the dashboard, and who looks for findings

        terminal.close()
        closed_ns = time.time_ns()
        assert psutil.wait_procs(shown_by, timeout=DEADLINE_S)[1] == []
        wait_until(lambda: recorded_until_ns(paths.find_run("latest")) > closed_ns, "a recording that goes on")
        assert run_command_line(["stop", "latest"]) == ExitCode.OK
        assert target.poll() is None
        with RunReader(paths.find_run("latest")) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "stopped")
