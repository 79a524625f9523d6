"""One person's way through the dashboard in a real terminal, beside a training that goes on all the
while.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launches import PROFD
from support.sessions import running
from support.terminal import Terminal
from support.waiting import until

from profd.daemon import paths
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader

pytestmark = pytest.mark.requires("tmux", "gdb", "torch")


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """Give a process that trains a small network for ever, and was not prepared for profd."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with running("torchloop.py") as process:
        yield process


@pytest.fixture
def terminal(profd_home: Path) -> Iterator[Terminal]:
    with Terminal(profd_home) as terminal:
        yield terminal


@pytest.fixture
def home(profd_home: Path) -> Iterator[Path]:
    """Give the folder that the terminal's shell is in; a recording that is still on is ended."""
    yield profd_home
    subprocess.run([PROFD, "stop", "latest"], check=False, capture_output=True)


def gone(terminal: Terminal, text: str) -> str:
    """Wait until a text has left the screen, and return the screen."""

    def look() -> str | None:
        screen = terminal.screen()
        return None if text in screen else screen

    return until(look, f"a screen without {text!r}")


def test_attach_scrub_zoom_search_window_report_and_leave(
    training: subprocess.Popen[str], terminal: Terminal, home: Path
) -> None:
    before = terminal.modes()
    terminal.start([PROFD, "attach", str(training.pid)])
    sees_where_the_time_goes(terminal)
    scrubs(terminal)
    zooms_and_searches_the_flame_graph(terminal)
    takes_a_window(terminal)
    writes_the_report(terminal, home)

    terminal.press("q")
    terminal.wait_for("leave it running and keep recording")
    terminal.press("q")
    assert terminal.wait_ended() == ExitCode.OK
    assert "still recording" in terminal.screen()
    assert not terminal.uses_alternate_screen()
    assert not terminal.takes_mouse()
    assert terminal.modes() == before
    assert training.poll() is None
    trains_on_and_is_recorded(training.pid)


def sees_where_the_time_goes(terminal: Terminal) -> None:
    terminal.wait_for("your line", "B backward", "torchloop.py:")
    terminal.press("2")
    screen = terminal.wait_for(
        "_engine_run_backward", "torchloop.py", "live ▶", "main threads · whole run"
    )
    assert "torchloop.py" in screen.splitlines()[0]


def scrubs(terminal: Terminal) -> None:
    assert "┃" not in terminal.screen()
    terminal.press("Left")
    terminal.wait_for("┃")
    gone(terminal, "whole run")
    terminal.press("Left", "[")
    terminal.wait_for("– now")  # noqa: RUF001
    terminal.press("]")
    gone(terminal, "– now")  # noqa: RUF001
    terminal.wait_for("[── ")
    terminal.press("Escape")
    gone(terminal, "┃")
    terminal.wait_for("main threads · whole run")


def zooms_and_searches_the_flame_graph(terminal: Terminal) -> None:
    terminal.press("3")
    terminal.wait_for("colors by phase")
    terminal.press("Down", "Down", "Down", "Down")
    terminal.wait_for("   self ")
    terminal.press("Enter")
    terminal.wait_for("zoomed to train")
    terminal.press("BSpace")
    gone(terminal, "zoomed to")

    terminal.press("/")
    terminal.wait_for(
        "show only what has this in it"
    )  # keys that come sooner still go to the graph
    terminal.type("adam.py")
    terminal.press("Enter")
    terminal.wait_for("of the time has “adam.py” in its stack")
    terminal.press("Escape")
    gone(terminal, "“adam.py”")
    terminal.press("Escape")  # takes the cursor out of the graph
    terminal.wait_for("colors by phase")  # a key right after Escape would be taken for one with Alt


def takes_a_window(terminal: Terminal) -> None:
    terminal.press("5")
    terminal.wait_for("w takes one")
    terminal.press("w")
    terminal.wait_for("not launched with --torch-window")
    terminal.press("y")
    terminal.wait_for("aten::convolution_backward", "Self CPU", "# of Calls")


def writes_the_report(terminal: Terminal, folder: Path) -> None:
    terminal.press("r")
    terminal.wait_for("Report written")
    (report,) = folder.glob("*.html")
    page = report.read_text()
    assert "<title>torchloop.py" in page
    assert page.rstrip().endswith("</html>")


def trains_on_and_is_recorded(pid: int) -> None:
    """See the run grow by what the process does after the dashboard has been left."""
    with RunReader(paths.find_run("latest")) as reader:
        assert (reader.info.target.pid, reader.info.state) == (pid, "live")
        left_ns = reader.info.end_ns

        def has_grown() -> bool:
            reader.refresh()
            return reader.info.end_ns > left_ns

        until(has_grown, "a recording that goes on")
