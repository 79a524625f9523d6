"""The keys that have something done: by a session that is made up, and by the dashboard itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from support.fakesession import FakeSession
from textual.message import Message
from textual.widgets import Input

from profd.daemon import processes
from profd.daemon.errors import SessionFailed
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.tree import treedump
from profd.daemon.tree.treedump import DumpedProcess
from profd.tui import actions
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import ChoiceScreen, Leaving, LeavingScreen, LineScreen, StacksScreen


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession()
    monkeypatch.setattr(actions, "ControlClient", session)
    monkeypatch.setattr(actions, "end_session", session.end)
    return session


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """Give a run that is recorded by this process."""
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        yield run.path


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=3)


async def until_screen(opened: OpenDashboard, kind: type[object]) -> None:
    while not isinstance(opened.top(), kind):
        await opened.until(Message)


async def test_w_takes_a_window_and_says_of_whom_or_why_not(live: Path, session: FakeSession) -> None:
    async with open_dashboard(live) as opened:
        await opened.press("w")
        await opened.until_notice("taking 5 steps of 2 processes; 4 shows the operators")
        assert session.asked == [("window", False)]

        session.failure = SessionFailed("no process of this run trains", "wait until one does")
        await opened.press("w")
        await opened.until_notice("no process of this run trains: wait until one does")


async def test_w_asks_before_anything_runs_in_a_process_that_is_not_armed(live: Path, session: FakeSession) -> None:
    session.is_armed = False
    async with open_dashboard(live) as opened:
        await opened.press("w")
        await until_screen(opened, ChoiceScreen)
        await opened.press("n")
        assert isinstance(opened.top(), Dashboard)
        assert session.asked == [("window", False)]
        await opened.press("w")
        await until_screen(opened, ChoiceScreen)
        await opened.press("y")
        await opened.until_notice("taking 5 steps")
    assert session.asked == [("window", False), ("window", False), ("window", True)]


async def test_m_marks_the_moment_with_a_note(live: Path, session: FakeSession) -> None:
    async with open_dashboard(live) as opened:
        await opened.press("m", "escape")
        assert session.asked == []
        await opened.press("m", *"spike", "enter")
        await opened.until_notice("the moment is marked")
        assert session.asked == [("mark", "spike")]

        await opened.press("m", "q", "s", "d")  # letters there, and no commands
        screen = opened.top()
        assert isinstance(screen, LineScreen)
        assert screen.query_one(Input).value == "qsd"
    assert session.asked == [("mark", "spike")]


async def test_plus_and_minus_change_the_rate_as_far_as_the_budget_goes(live: Path, session: FakeSession) -> None:
    session.most_hz = 150
    async with open_dashboard(live) as opened:
        await opened.press("minus")
        await opened.until_notice("profd samples at 50 Hz instead of 100 Hz")
        await opened.press("plus")
        await opened.until_notice("profd samples at 100 Hz instead of 50 Hz")
        await opened.press("plus")
        await opened.until_notice("profd samples at 150 Hz instead of 100 Hz; 200 Hz would cost more than the budget")
        assert session.asked == [("rate", 50), ("rate", 100), ("rate", 200)]

        session.failure = SessionFailed("the session cannot be reached", "it may have ended")
        await opened.press("plus")
        await opened.until_notice("the session cannot be reached: it may have ended")


async def test_s_asks_and_then_ends_the_recording(live: Path, session: FakeSession) -> None:
    async with open_dashboard(live) as opened:
        await opened.press("s", "n")
        assert isinstance(opened.top(), Dashboard)
        await opened.press("s", "escape", "s", "s")
        await opened.until_notice("the recording ends; the script runs on")
    assert session.asked == ["stop"]


async def test_d_shows_equal_stacks_once(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = (DumpedFrame("forward", "/home/ada/cifar/[model].py", 12), DumpedFrame("main", "/home/ada/train.py", 90))
    thread = DumpedThread(1, 1, "MainThread", active=True, owns_gil=False, frames=frames)
    dumped = [DumpedProcess(4242, ("python",), (thread,)), DumpedProcess(4243, ("python",), (thread,))]
    monkeypatch.setattr(treedump, "dump_tree", lambda pid: [*dumped, DumpedProcess(4244, ("python",), error="gone")])
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: True)
    async with open_dashboard(live) as opened:
        await opened.press("d")
        await until_screen(opened, StacksScreen)
        await opened.settle()
        shown = opened.app.export_screenshot().replace("&#160;", " ")
        for part in (
            "2 threads in 1 stack",
            "pid 4242 MainThread (active), pid 4243",
            "[model].py:12",
            "4244 cannot be",
        ):
            assert part in shown
        await opened.press("d")
        assert isinstance(opened.top(), Dashboard)


async def test_what_only_a_live_run_can_do_is_not_asked_of_another(ended: Path) -> None:
    async with open_dashboard(ended) as opened:
        for count, key in enumerate("ms", start=1):
            await opened.press(key)
            assert opened.notices() == ["the run is not recorded any more"] * count
            assert isinstance(opened.top(), Dashboard)
        await opened.press("d")
        await opened.until_notice("has ended")


LEAVING = [
    (("q", "k"), Leaving.KEEP),
    (("q", "q"), Leaving.KEEP),
    (("q", "enter"), Leaving.KEEP),
    (("q", "e"), Leaving.END),
    (("ctrl+c", "e"), Leaving.END),
    (("b",), Leaving.KEEP),
]
"""Keys, and what becomes of the recording."""


class TestLeaving:
    async def test_q_asks_what_becomes_of_a_live_recording(
        self, live: Path, session: FakeSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left: list[Leaving] = []
        async with open_dashboard(live) as opened:
            with monkeypatch.context() as patched:
                patched.setattr(opened.app, "exit", left.append)
                for keys, leaving in LEAVING:
                    await opened.press(*keys)
                    assert left == [leaving]
                    assert isinstance(opened.top(), Dashboard)
                    left.clear()

            await opened.press("q")
            assert isinstance(opened.top(), LeavingScreen)
            await opened.press("escape")
            assert isinstance(opened.top(), Dashboard)
            await opened.press("q", "e")
        assert opened.app.return_value is Leaving.END
        assert session.asked == []

    async def test_who_only_looks_has_the_session_end_the_recording(self, live: Path, session: FakeSession) -> None:
        async with open_dashboard(live, may_end=False) as opened:
            await opened.press("q", "e")
            await opened.app.workers.wait_for_complete()
        assert session.asked == ["stop"]
        assert opened.app.return_value is Leaving.END

    async def test_a_recording_that_cannot_be_ended_keeps_the_dashboard_open(
        self, live: Path, session: FakeSession
    ) -> None:
        session.failure = SessionFailed("the session cannot be reached", "it may have ended")
        async with open_dashboard(live, may_end=False) as opened:
            await opened.press("q", "e")
            await opened.until_notice("the session cannot be reached")
            assert isinstance(opened.top(), Dashboard)
