"""`profd attach` in a real terminal: hot functions, changes followed, `q` leaves.

How soon they are seen is measured by ``benchmarks/cost/dashboard.py --attach``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.launches import PROFD
from support.pyspy.standin import StandIn
from support.sessions import hand_over, running
from support.terminal import Terminal
from support.traces import stack
from support.waiting import DEADLINE_S

from profd.cli.main import run_command_line
from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader

pytestmark = pytest.mark.requires("tmux")


@pytest.fixture
def terminal(profd_home: Path, py_spy: StandIn) -> Iterator[Terminal]:
    py_spy.stands_in(stack("before_the_line"))
    with Terminal(profd_home) as terminal:
        yield terminal


def test_attach_shows_hot_functions_and_follows_changes(
    terminal: Terminal, py_spy: StandIn
) -> None:
    with running("switching.py") as target:
        terminal.start([PROFD, "attach", str(target.pid)])
        terminal.wait_for("your line")
        terminal.press("2")
        screen = terminal.wait_for("before_the_line")
        assert "after_the_line" not in screen
        py_spy.stands_in(stack("after_the_line"))
        terminal.wait_for("after_the_line")

        terminal.press("q")
        terminal.wait_for("leave it running and keep recording")
        terminal.press("e")
        assert terminal.wait_ended() == ExitCode.OK
        assert not terminal.uses_alternate_screen()
        assert "profd  switching.py" in terminal.screen()
        assert target.poll() is None
        with RunReader(paths.find_run("latest")) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "stopped")


def test_leaving_in_the_background_keeps_recording_and_view_comes_back(terminal: Terminal) -> None:
    with running("switching.py") as target:
        terminal.start([PROFD, "attach", str(target.pid)])
        terminal.wait_for("your line")
        terminal.press("2")
        terminal.wait_for("before_the_line")
        terminal.press("q")
        terminal.wait_for("leave it running and keep recording")
        terminal.press("k")
        assert terminal.wait_ended() == ExitCode.OK
        assert "still recording" in terminal.screen()

        terminal.type("clear")
        terminal.press("Enter")
        terminal.start([PROFD, "view", "latest"])
        terminal.wait_for("your line")
        terminal.press("2")
        terminal.wait_for("before_the_line")
        terminal.press("q")
        terminal.wait_for("leave it running and keep recording")
        terminal.press("q")
        terminal.wait_ended()
        with RunReader(paths.find_run("latest")) as reader:
            assert reader.info.state == "live"
        assert run_command_line(["stop", "latest"]) == ExitCode.OK
        assert target.poll() is None


def test_a_closed_terminal_ends_the_dashboard_and_not_the_recording(terminal: Terminal) -> None:
    # What a broken ssh does too: its end of the terminal is closed, and those on it get SIGHUP.
    with running("switching.py") as target:
        terminal.start([PROFD, "attach", str(target.pid)])
        terminal.wait_for("your line")
        terminal.press("2")
        terminal.wait_for("before_the_line")
        with RunReader(paths.find_run("latest")) as reader:
            recorder = psutil.Process(reader.info.recorder.pid)
        dashboard = recorder.parent()
        assert dashboard is not None

        terminal.close()
        assert psutil.wait_procs([dashboard], timeout=DEADLINE_S)[1] == []
        hand_over(paths.find_run("latest"), 2)  # the first of them began before
        assert run_command_line(["stop", "latest"]) == ExitCode.OK
        assert target.poll() is None
        with RunReader(paths.find_run("latest")) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "stopped")
