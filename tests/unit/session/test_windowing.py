"""Which processes a window is taken of: by their roles, and by whether they have asked for work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.kinetoclient import KinetoClient, inquiry

from profd.daemon.errors import SessionFailed
from profd.daemon.events import EventKind
from profd.daemon.session.control import WindowBegun
from profd.daemon.session.windowing import Windowing
from profd.daemon.store.records import EventHappened, Found, Identity, Record
from profd.daemon.tree.tree import Member
from profd.daemon.windows.request import WindowRequest
from profd.daemon.windows.taking import WindowBackend, WindowTaker


def member(pid: int, role: str, python: str | None = "3.11.7") -> Member:
    return Member(Identity(pid, 1), None, ("python",), role, None, None, python, 0)


RANKS = [member(11, "main"), member(12, "main")]
OTHERS = [
    member(10, "launcher"),
    member(13, "worker"),
    member(14, "helper"),
    member(15, "main", python=None),
]

WAITS = Found("input-bound", "critical", "input-bound: waits 61 %", "{}")
SYNCHRONIZES = Found("synchronization", "warning", "synchronization: 12 %", "{}")
STARTED = Found("slow-start", "info", "startup: 20 s", "{}")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("w")


@pytest.fixture
async def windowing(folder: Path) -> AsyncIterator[Windowing]:
    windowing = Windowing(folder, StoppedClock(), lambda _: None)
    windowing.start()
    yield windowing
    await windowing.close()


async def test_every_training_process_is_asked_and_no_other(windowing: Windowing) -> None:
    begun = windowing.begin([*OTHERS, *RANKS], WindowRequest(inject=True))
    assert (begun.pids, begun.injected) == ((11, 12), False)  # it is armed
    assert begun.asked_ns == StoppedClock().at_ns


async def test_one_process_may_be_named(windowing: Windowing) -> None:
    assert windowing.begin([*OTHERS, *RANKS], WindowRequest(pid=12)).pids == (12,)
    with pytest.raises(SessionFailed, match="process 13 of this run does not train"):
        windowing.begin([*OTHERS, *RANKS], WindowRequest(pid=13))
    with pytest.raises(SessionFailed, match="no process of this run trains"):
        windowing.begin(OTHERS, WindowRequest())


async def test_processes_that_have_asked_go_before_those_that_have_not(
    windowing: Windowing, folder: Path
) -> None:
    with KinetoClient(folder) as client:
        for pid in (12, 13):
            client.send(inquiry(pid))
            await client.answer()
    assert windowing.begin([*OTHERS, *RANKS], WindowRequest()).pids == (12,)


async def test_run_that_was_not_armed_takes_none_and_says_how() -> None:
    unarmed = Windowing(None, StoppedClock(), lambda _: None)
    unarmed.start()
    with pytest.raises(
        SessionFailed, match=r"launch it with `profd run --torch-window.* or add --inject"
    ):
        unarmed.begin(RANKS, WindowRequest())
    await unarmed.close()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> dict[Identity, WindowBackend]:
    """Give the ways by which processes are asked for windows."""
    ways: dict[Identity, WindowBackend] = {}

    def begin(
        self: WindowTaker, asked: Mapping[Identity, WindowBackend], request: WindowRequest
    ) -> int:
        ways.update(asked)
        return 7

    monkeypatch.setattr(WindowTaker, "begin", begin)
    return ways


async def test_run_that_was_not_armed_is_injected_on_demand_and_says_so(
    ways: dict[Identity, WindowBackend],
) -> None:
    begun = Windowing(None, StoppedClock(), lambda _: None).begin(
        [*OTHERS, *RANKS], WindowRequest(inject=True)
    )
    assert (begun.asked_ns, begun.pids, begun.injected) == (7, (11, 12), True)
    assert {way.source for way in ways.values()} == {"gdb"}


class Noting(Windowing):
    """Notes what it is asked for and what it writes.

    ``refused`` are windows that it does not take, counted from 1.
    """

    def __init__(
        self,
        folder: Path | None,
        refused: Collection[int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.asked: list[WindowRequest] = []
        self.written: list[Record] = []
        self.refused = refused
        super().__init__(folder, StoppedClock(), self.written.append, sleep)

    def begin(self, members: Collection[Member], request: WindowRequest) -> WindowBegun:
        self.asked.append(request)
        if len(self.asked) in self.refused:
            raise SessionFailed("process 11 is at a window already")
        self.written.append(EventHappened(0, EventKind.WINDOW, "begun"))
        return WindowBegun(1, (11,))

    @property
    def said(self) -> list[str]:
        return [record.text for record in self.written if isinstance(record, EventHappened)]


async def test_windows_are_taken_by_a_schedule_and_those_that_cannot_be_are_said() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 3:
            raise asyncio.CancelledError

    windowing = Noting(None, (2,), sleep)
    with pytest.raises(asyncio.CancelledError):
        await windowing.keep(60.0, WindowRequest(steps=7), lambda: RANKS)
    assert slept == [60.0] * 4
    assert windowing.asked == [WindowRequest(steps=7)] * 3
    assert windowing.said == [
        "begun",
        "no window by schedule: process 11 is at a window already",
        "begun",
    ]


FIRST, SECOND = (
    "a window because of input-bound: waits 61 %",
    "a window because of synchronization: 12 %",
)


@pytest.mark.parametrize(
    ("seen", "listens", "refused", "said"),
    [
        (
            [(), (WAITS,), (WAITS,), (SYNCHRONIZES, WAITS), (SYNCHRONIZES,)],
            True,
            (),
            ["begun", FIRST, "begun", SECOND],
        ),
        (
            [(WAITS, SYNCHRONIZES), (SYNCHRONIZES, WAITS)],
            True,
            (),
            ["begun", f"{FIRST}; and of synchronization: 12 %"],
        ),
        ([(WAITS,)] * 3, True, (1,), ["begun", FIRST]),
        ([(STARTED,)], True, (), []),
        ([(WAITS,)], False, (), []),
    ],
    ids=[
        "each kind has one",
        "those of one look share theirs",
        "again",
        "no remark has",
        "before torch listens",
    ],
)
async def test_a_finding_has_a_window_that_says_why(
    folder: Path,
    seen: list[tuple[Found, ...]],
    listens: bool,
    refused: tuple[int, ...],
    said: list[str],
) -> None:
    windowing = Noting(folder, refused)
    windowing.start()
    if listens:
        with KinetoClient(folder) as client:
            client.send(inquiry(11))
            await client.answer()
    for found in seen:
        windowing.heed(found, WindowRequest(steps=7), RANKS)
    await windowing.close()
    assert set(windowing.asked) <= {WindowRequest(steps=7)}
    assert windowing.said == said
