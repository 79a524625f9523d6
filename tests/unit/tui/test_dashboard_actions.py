"""The keys that have something done: by a session that is made up, and by the dashboard itself."""

from __future__ import annotations

import signal
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import hostiletexts, synthetic
from support.dashboard import OpenDashboard, open_dashboard
from support.fakesession import FakeSession
from support.present import there
from support.synthetic import STARTED_NS
from support.waiting import until
from textual.message import Message
from textual.messages import ExitApp
from textual.widget import Widget
from textual.widgets import Input, OptionList

from profd.daemon import processes
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import SessionFailed
from profd.daemon.launch.terminal import PseudoTerminal
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.tree import tree
from profd.daemon.tree.tree import DumpedProcess
from profd.tui import dialogs
from profd.tui.actions import ActionFailed
from profd.tui.app import ProfdApp
from profd.tui.colors import DARK, LIGHT
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import ChoiceScreen, Leaving, LeavingScreen, LineScreen, StacksScreen
from profd.tui.terminal import Terminal
from profd.tui.widgets.findings import FindingTable
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header, VerdictLine
from profd.tui.widgets.hot import HotTable, LineTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.processes import EventTable, ProcessTable
from profd.tui.widgets.tabs import KeyLine, TabLine
from profd.tui.widgets.timeline import Timeline


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        yield run.path


async def until_screen(opened: OpenDashboard, kind: type[object]) -> None:
    while not isinstance(opened.top(), kind):
        await opened.until(Message)


async def test_w_takes_a_window_and_names_the_processes_or_the_failure(
    live: Path, session: FakeSession
) -> None:
    async with open_dashboard(live) as opened:
        await opened.press("w")
        await opened.until_notice("taking 5 steps of 2 processes; 5 shows the operators")
        assert session.asked == [("window", False)]
        session.failure = SessionFailed("no process of this run trains", "wait until one does")
        await opened.press("w")
        await opened.until_notice("no process of this run trains: wait until one does")

        # It asks before anything runs in a process that is not armed.
        session.failure, session.is_armed = None, False
        session.asked.clear()
        await opened.press("w")
        await until_screen(opened, ChoiceScreen)
        await opened.press("n")
        assert isinstance(opened.top(), Dashboard)
        await opened.press("w")
        await until_screen(opened, ChoiceScreen)
        await opened.press("y")
        while session.asked != [("window", False), ("window", False), ("window", True)]:
            await opened.until(Message)
        session.failure = SessionFailed("it failed", "try --inject")
        await opened.press("w")
        await until_screen(opened, ChoiceScreen)
        await opened.press("y")
        await opened.until_notice("it failed: try --inject")  # and does not ask again


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


async def test_d_shows_equal_stacks_once(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = (
        DumpedFrame("forward", "/home/ada/cifar/[model].py", 12),
        DumpedFrame("main", "/home/ada/train.py", 90),
    )
    thread = DumpedThread(
        1,
        "MainThread",
        active=True,
        owns_gil=False,
        frames=frames,
        native=("futex_wait (libc.so.6)",),
    )
    dumped = [
        DumpedProcess(4242, ("python",), (thread,)),
        DumpedProcess(4243, ("python",), (thread,)),
    ]
    monkeypatch.setattr(
        tree,
        "dump_tree",
        lambda pid, native: [*dumped, DumpedProcess(4244, ("python",), error="gone")],
    )
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: True)
    async with open_dashboard(live) as opened:
        await opened.press("d")
        await until_screen(opened, StacksScreen)
        await opened.settle()
        shown = opened.app.export_screenshot().replace("&#160;", " ")
        for part in (
            "2 threads in 1 stack",
            "pid 4242 MainThread (active), pid",
            "futex_wait (libc.so.6)",
            "[model].py:12",
            "4244 cannot be",
        ):
            assert part in shown
        await opened.press("d")
        assert isinstance(opened.top(), Dashboard)


async def test_what_only_a_live_run_can_do_is_not_asked_of_another_and_keys_leave_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Leaving] = []
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd", seconds=3)) as opened:
        for keys, title in (("m enter", "No mark"), ("w", "No window")):
            await opened.press(*keys.split())
            failed = await opened.until(ActionFailed)
            assert (failed.title, failed.error.what) == (title, "the run is not recorded any more")
            assert isinstance(opened.top(), Dashboard)
        await opened.press("d")
        await opened.until_notice("has ended")
        with monkeypatch.context() as patched:
            patched.setattr(opened.app, "exit", left.append)
            await opened.press("ctrl+c", "ctrl+q")
        assert left == [Leaving.END, Leaving.END]
        await opened.press("q")
    assert opened.app.return_value is Leaving.END


async def test_q_asks_what_becomes_of_a_live_recording(
    live: Path, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Leaving] = []
    keep, end = ("q k", "q q", "q enter"), ("q e", "ctrl+c e")
    async with open_dashboard(live) as opened:
        with monkeypatch.context() as patched:
            patched.setattr(opened.app, "exit", left.append)
            for keys in (*keep, *end):
                await opened.press(*keys.split())
                assert left.pop() is (Leaving.KEEP if keys in keep else Leaving.END)
                assert (left, type(opened.top())) == ([], Dashboard)
        await opened.press("q")
        assert isinstance(opened.top(), LeavingScreen)
        await opened.press("escape")
        assert isinstance(opened.top(), Dashboard)
        await opened.press("q", "e")
    assert opened.app.return_value is Leaving.END
    assert session.asked == []


async def test_ctrl_c_twice_stops_the_script_by_ever_more_and_once_or_slowly_does_nothing(
    live: Path, pty: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(PseudoTerminal, "send", lambda terminal, number: sent.append(number))
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(dialogs, "monotonic", lambda: next(clock))
    async with open_dashboard(live, keys_fd=pty[0]) as opened:
        for keys in (("ctrl+c", "escape"), ("q", "ctrl+c", "ctrl+c", "escape")):
            await opened.press(*keys)
            assert isinstance(opened.top(), Dashboard)
        assert opened.notices() == []
        monkeypatch.setattr(dialogs, "monotonic", lambda: 0.0)
        await opened.press("ctrl+c", "ctrl+c")
        await opened.until_notice("the script has been sent SIGINT")
        await opened.press("ctrl+c", "enter")
        await opened.until_notice("the script has been sent SIGTERM")
        # Nothing but its own answer kills.
        await opened.press("ctrl+c", "ctrl+c")
        assert isinstance(opened.top(), LeavingScreen)
        await opened.press("s")
        await opened.until_notice("the script has been sent SIGKILL")
        until(lambda: sent == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], "the signals")


async def test_a_script_that_profd_did_not_launch_cannot_be_stopped(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogs, "monotonic", lambda: 0.0)
    async with open_dashboard(live) as opened:
        await opened.press("ctrl+c", "ctrl+c", "s")
        screen = opened.top()
        assert isinstance(screen, LeavingScreen)
        words = [str(option.prompt) for option in screen.query_one(OptionList).options]
        assert [word[0] for word in words] == ["k", "e"]
        assert all("leave it running" in word for word in words)


async def test_a_script_without_its_launcher_is_said_to_be_out_of_reach(
    live: Path, pty: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_dashboard(live, keys_fd=pty[0]) as opened:
        await opened.press("q")
        with monkeypatch.context() as patched:
            patched.setattr(Terminal, "signal", lambda terminal, number: False)
            await opened.press("s")
            await opened.until_notice("the script cannot be reached: its launcher is gone, or busy")


async def test_a_viewer_asks_the_session_to_end_the_recording(
    live: Path, session: FakeSession
) -> None:
    session.failure = SessionFailed("the session cannot be reached", "it may have ended")
    async with open_dashboard(live, may_end=False) as opened:
        await opened.press("q", "e")
        await opened.until_notice("the session cannot be reached")
        assert isinstance(opened.top(), Dashboard)
        session.failure = None
        await opened.press("q", "e")
        await opened.until(ExitApp)
    assert session.asked == ["stop"]
    assert opened.app.return_value is Leaving.END


async def test_the_timeline_has_gpus_before_memory_or_says_there_are_none(tmp_path: Path) -> None:
    def strip(opened: OpenDashboard) -> str:
        (found,) = (
            line for line in opened.text(Timeline).splitlines() if line.startswith(" GPU  ")
        )
        return found

    # Of two GPUs one is always busy, the other never.
    points = tuple(
        Point("gpu_utilization_share", share, device=f"gpu{share:.0f}") for share in (0.0, 1.0)
    )
    taken = (PointsTaken(STARTED_NS + second * SECOND_NS, points) for second in range(5))
    async with open_dashboard(synthetic.write_records(tmp_path / "a.profd", taken)) as opened:
        assert "▄▄▄" in strip(opened)
        assert "50 %" in strip(opened)
        await opened.resize(80, 24)
        assert strip(opened)
        assert " RSS" not in opened.text(Timeline)
    async with open_dashboard(synthetic.write_run(tmp_path / "b.profd")) as opened:
        assert strip(opened).split() == ["GPU", "no", "GPU"]
        await opened.press("2")
        assert "GPU" not in opened.text(HotTable)
        await opened.press("o", "o")
        assert opened.widget(HotTable).sorted_by == "self"
        await opened.resize(80, 24)
        assert " RSS" in opened.text(Timeline)


SIZES = [(20, 5), (30, 9), (50, 14), (80, 24), (120, 36), (200, 60)]
KEYS = (
    *(
        "down",
        "o",
        "t",
        "z",
        "3",
        "down",
        "down",
        "4",
        "5",
        "6",
        "7",
        "8",
        "question_mark",
        "escape",
        "2",
        "escape",
    ),
    *(
        "left",
        "left_square_bracket",
        "shift+left",
        "right_square_bracket",
        "z",
        "right",
        "Z",
        "Z",
        "escape",
    ),
)
WIDGETS: tuple[type[Widget], ...] = (
    *(Header, VerdictLine, Timeline, TabLine, LineTable, HotTable, FlameView, ProcessTable),
    *(OperatorTable, FindingTable, EventTable, OutputPane, KeyLine),
)


def assert_lines_fit(opened: OpenDashboard) -> None:
    """Check that no line of any widget is wider or narrower than its widget."""
    for kind in WIDGETS:
        widget = opened.widget(kind)
        for y in range(widget.size.height):
            assert widget.render_line(y).cell_length == widget.size.width, (kind, y)


@pytest.mark.dashboard
@pytest.mark.parametrize(("live", "sizes"), [(True, [SIZES[0], SIZES[-1]]), (False, SIZES[::2])])
async def test_every_tab_fits_every_size(
    tmp_path: Path, live: bool, sizes: list[tuple[int, int]]
) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", live=live)
    async with open_dashboard(run, size=sizes[-1]) as opened:
        for size in reversed(sizes):
            await opened.resize(*size)
            assert_lines_fit(opened)
            for key in KEYS:
                await opened.press(key)
                assert_lines_fit(opened)
                found = there(opened.widget(Header).snapshot)
                assert live or found.samples > 0 or found.view.scope.role  # of few there is none
            assert "train.py" in opened.text(Header)
            if opened.app.feed.view.scope == Selection() and size >= (200, 60):
                assert "10.0 %" in opened.text(HotTable)
        # In a small room the table has the lines.
        shown = [
            widget.id or type(widget).__name__
            for widget in opened.dashboard.children
            if widget.display
        ]
        assert shown[:3] == ["Header", "TabLine", "panes"]
        assert opened.widget(HotTable).size.height == 3
        await opened.resize(120, 36)
        assert_lines_fit(opened)
        grown = there(opened.widget(Header).snapshot)
        assert grown.view.columns == 120 - 10 - 44 - 2
        assert live or len(grown.timeline.phase_rows[0].cells) == grown.view.columns
        assert "he main thread waits" in opened.text(VerdictLine)
        for theme in ("profd-light", "textual-dark", "textual-light", "nord"):
            opened.app.theme = theme
            await opened.press("down")
            assert_lines_fit(opened)


@pytest.mark.dashboard
async def test_hostile_names_are_spelled_out_and_never_obeyed(tmp_path: Path) -> None:
    async with open_dashboard(
        hostiletexts.write_run(tmp_path / "[bold red]x[nonsense.profd")
    ) as opened:
        for size in SIZES:
            await opened.resize(*size)
            for key in ("1", "2", "3", "4"):
                await opened.press(key)
                assert_lines_fit(opened)
            await opened.press("2")
            for kind in WIDGETS:
                shown = opened.text(kind).replace("\n", "")
                assert all(
                    unicodedata.category(character) not in {"Cc", "Cf", "Cs"} for character in shown
                ), kind
            await opened.press("2")
            if size[0] >= 120:
                assert "<img src=x" in opened.text(HotTable)
                assert "\\x1b[31m" in opened.text(Header) + opened.text(VerdictLine) + opened.text(
                    HotTable
                )
        opened.app.notify("[bold]x[/] [nonsense", markup=False)
        await opened.settle()
        assert opened.notices() == ["[bold]x[/] [nonsense"]


@pytest.mark.parametrize(
    ("background", "theme"), [("15;0", DARK), ("0;15", LIGHT), ("0;default;15", LIGHT), ("", DARK)]
)
def test_the_theme_suits_the_terminals_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: str, theme: object
) -> None:
    monkeypatch.setenv("COLORFGBG", background)
    assert ProfdApp(tmp_path / "a.profd").current_theme is theme
