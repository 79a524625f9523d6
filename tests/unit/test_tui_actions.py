"""The keys that have something done: by a session that is made up, and by the dashboard itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import synthetic
from textual.message import Message
from textual.widgets import Input
from theater import Theater, play

from profd.daemon import processes
from profd.daemon.collect.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.errors import SessionFailed
from profd.daemon.store.writer import RunWriter
from profd.daemon.supervise import treedump
from profd.daemon.supervise.control import SessionStatus, WindowBegun
from profd.daemon.supervise.treedump import DumpedProcess
from profd.daemon.windows.request import WindowRequest
from profd.tui.errands import session as session_errands
from profd.tui.leaving import Leaving
from profd.tui.screens.asking import ChoiceScreen, LineScreen
from profd.tui.screens.dashboard import Dashboard
from profd.tui.screens.leaving import LeavingScreen
from profd.tui.screens.stacks import StacksScreen


@dataclass
class FakeSession:
    """Takes down what it is asked; takes windows where it is armed, or by injection."""

    rate_hz: int = 100
    most_hz: int = 500
    is_armed: bool = True
    failure: SessionFailed | None = None
    asked: list[object] = field(default_factory=list)

    def __call__(self, path: Path) -> FakeSession:
        if self.failure:
            raise self.failure
        return self

    def close(self) -> None:
        pass

    def _status(self) -> SessionStatus:
        return SessionStatus("id", "/runs/id.profd", 1, 4242, self.rate_hz, 1)

    def hello(self) -> SessionStatus:
        return self._status()

    def mark(self, note: str) -> SessionStatus:
        self.asked.append(("mark", note))
        return self._status()

    def stop(self) -> SessionStatus:
        self.asked.append("stop")
        return self._status()

    def aim_at_rate(self, rate_hz: int) -> SessionStatus:
        self.asked.append(("rate", rate_hz))
        self.rate_hz = min(rate_hz, self.most_hz)
        return self._status()

    def window(self, request: WindowRequest) -> WindowBegun:
        self.asked.append(("window", request.inject))
        if not self.is_armed and not request.inject:
            raise SessionFailed("this run takes no windows", "launch it with --torch-window, or add --inject")
        return WindowBegun(1, (4242, 4243))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession()
    monkeypatch.setattr(session_errands, "ControlClient", session)
    return session


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """Give a run that is recorded by this process."""
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        yield run.path


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=3)


async def until_screen(theater: Theater, kind: type[object]) -> None:
    while not isinstance(theater.top(), kind):
        await theater.until(Message)


async def test_w_takes_a_window_and_says_of_whom(live: Path, session: FakeSession) -> None:
    async with play(live) as theater:
        await theater.press("w")
        await theater.until_notice("taking 5 steps of 2 processes; 4 shows the operators")
    assert session.asked == [("window", False)]


async def test_w_asks_before_anything_runs_in_a_process_that_is_not_armed(live: Path, session: FakeSession) -> None:
    session.is_armed = False
    async with play(live) as theater:
        await theater.press("w")
        await until_screen(theater, ChoiceScreen)
        await theater.press("n")
        assert isinstance(theater.top(), Dashboard)
        assert session.asked == [("window", False)]
        await theater.press("w")
        await until_screen(theater, ChoiceScreen)
        await theater.press("y")
        await theater.until_notice("taking 5 steps")
    assert session.asked == [("window", False), ("window", False), ("window", True)]


async def test_a_window_that_cannot_be_taken_says_why_and_how(live: Path, session: FakeSession) -> None:
    session.failure = SessionFailed("no process of this run trains", "wait until one does")
    async with play(live) as theater:
        await theater.press("w")
        await theater.until_notice("no process of this run trains: wait until one does")


async def test_m_marks_the_moment_with_a_note(live: Path, session: FakeSession) -> None:
    async with play(live) as theater:
        await theater.press("m", "escape")
        assert session.asked == []
        await theater.press("m", *"spike", "enter")
        await theater.until_notice("the moment is marked")
    assert session.asked == [("mark", "spike")]


async def test_letters_of_a_note_are_no_commands(live: Path, session: FakeSession) -> None:
    async with play(live) as theater:
        await theater.press("m", "q", "s", "d")
        screen = theater.top()
        assert isinstance(screen, LineScreen)
        assert screen.query_one(Input).value == "qsd"


async def test_plus_and_minus_change_the_rate_as_far_as_the_budget_goes(live: Path, session: FakeSession) -> None:
    session.most_hz = 150
    async with play(live) as theater:
        await theater.press("minus")
        await theater.until_notice("profd samples at 50 Hz instead of 100 Hz")
        await theater.press("plus")
        await theater.until_notice("profd samples at 100 Hz instead of 50 Hz")
        await theater.press("plus")
        await theater.until_notice("profd samples at 150 Hz instead of 100 Hz; 200 Hz would cost more than the budget")
    assert session.asked == [("rate", 50), ("rate", 100), ("rate", 200)]


async def test_s_asks_and_then_ends_the_recording(live: Path, session: FakeSession) -> None:
    async with play(live) as theater:
        await theater.press("s", "n")
        assert isinstance(theater.top(), Dashboard)
        await theater.press("s", "escape", "s", "s")
        await theater.until_notice("the recording ends; the script runs on")
    assert session.asked == ["stop"]


async def test_d_shows_equal_stacks_once(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = (DumpedFrame("forward", "/home/ada/cifar/[model].py", 12), DumpedFrame("main", "/home/ada/train.py", 90))
    thread = DumpedThread(1, 1, "MainThread", active=True, owns_gil=False, frames=frames)
    dumped = [DumpedProcess(4242, ("python",), (thread,)), DumpedProcess(4243, ("python",), (thread,))]
    monkeypatch.setattr(treedump, "dump_tree", lambda pid: [*dumped, DumpedProcess(4244, ("python",), error="gone")])
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: True)
    async with play(live) as theater:
        await theater.press("d")
        await until_screen(theater, StacksScreen)
        await theater.pilot.pause()
        shown = theater.app.export_screenshot().replace("&#160;", " ")
        for part in (
            "2 threads in 1 stack",
            "pid 4242 MainThread (active), pid 4243",
            "[model].py:12",
            "4244 cannot be",
        ):
            assert part in shown
        await theater.press("d")
        assert isinstance(theater.top(), Dashboard)


async def test_a_target_that_is_gone_has_no_stacks(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("d")
        await theater.until_notice("has ended")


@pytest.mark.parametrize(
    ("downs", "name"), [(0, "a.collapsed.txt"), (1, "a.speedscope.json"), (2, "a.svg"), (5, "a-csv/processes.csv")]
)
async def test_e_writes_what_is_looked_at_and_says_where(
    ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, downs: int, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with play(ended) as theater:
        await theater.press("e", *["down"] * downs, "enter")
        await theater.until_notice(str(tmp_path / name.partition("/")[0]))
    assert (tmp_path / name).stat().st_size > 100


async def test_an_export_that_cannot_be_written_is_told(
    ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.svg").mkdir()
    async with play(ended) as theater:
        await theater.press("e", "down", "down", "enter")
        await theater.until_notice("cannot write")


@pytest.mark.parametrize("key", ["m", "s"])
async def test_what_only_a_live_run_can_do_is_not_asked_of_another(ended: Path, key: str) -> None:
    async with play(ended) as theater:
        await theater.press(key)
        await theater.until_notice("the run is not recorded any more")
        assert isinstance(theater.top(), Dashboard)


@pytest.mark.parametrize("key", ["w", "plus"])
async def test_a_session_that_has_gone_is_told(live: Path, session: FakeSession, key: str) -> None:
    session.failure = SessionFailed("the session cannot be reached", "it may have ended")
    async with play(live) as theater:
        await theater.press(key)
        await theater.until_notice("the session cannot be reached: it may have ended")


class TestLeaving:
    @pytest.mark.parametrize(
        ("keys", "leaving"),
        [
            (("q", "k"), Leaving.KEEP),
            (("q", "q"), Leaving.KEEP),
            (("q", "enter"), Leaving.KEEP),
            (("q", "e"), Leaving.END),
            (("ctrl+c", "e"), Leaving.END),
            (("b",), Leaving.KEEP),
        ],
    )
    async def test_q_asks_what_becomes_of_a_live_recording(
        self, live: Path, session: FakeSession, keys: tuple[str, ...], leaving: Leaving
    ) -> None:
        async with play(live) as theater:
            await theater.press(*keys)
        assert theater.app.return_value is leaving
        assert session.asked == []

    async def test_escape_stays(self, live: Path) -> None:
        async with play(live) as theater:
            await theater.press("q")
            assert isinstance(theater.top(), LeavingScreen)
            await theater.press("escape")
            assert isinstance(theater.top(), Dashboard)

    async def test_who_only_looks_has_the_session_end_the_recording(self, live: Path, session: FakeSession) -> None:
        async with play(live, may_end=False) as theater:
            await theater.press("q", "e")
            await theater.app.workers.wait_for_complete()
        assert session.asked == ["stop"]
        assert theater.app.return_value is Leaving.END

    async def test_a_recording_that_cannot_be_ended_keeps_the_dashboard_open(
        self, live: Path, session: FakeSession
    ) -> None:
        session.failure = SessionFailed("the session cannot be reached", "it may have ended")
        async with play(live, may_end=False) as theater:
            await theater.press("q", "e")
            await theater.until_notice("the session cannot be reached")
            assert isinstance(theater.top(), Dashboard)


async def test_the_palette_has_every_action(tmp_path: Path) -> None:
    started = msgspec.structs.replace(synthetic.run_started(), mode="attached")
    RunWriter(tmp_path / "a.profd", started, synthetic.describe).close()
    async with play(tmp_path / "a.profd") as theater:
        titles = {command.title for command in theater.app.get_system_commands(theater.dashboard)}
    assert titles >= {
        "Window",
        "Dump",
        "Mark",
        "Export",
        "Report",
        "Stop profiling",
        "Sample more often",
        "Flame graph",
    }
