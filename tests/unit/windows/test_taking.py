"""What comes of asking a process for a window: a record of it, or of why there is none.

Its torch is a plain socket.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.beginnings import beginning_of
from support.clocks import StoppedClock
from support.kinetoclient import KinetoClient, inquiry
from support.kinetotraces import TraceScript
from support.plainuser import NOBODY, process_of_plain_user
from support.synthetic import identity_of
from support.waiting import DEADLINE_S, eventually, until

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.errors import OutputUnwritable, SessionFailed
from profd.daemon.store.records import EventHappened, Record, WindowTaken
from profd.daemon.windows import kineto, ondemand
from profd.daemon.windows.ondemand import OnDemand
from profd.daemon.windows.request import WindowFailed, WindowRequest
from profd.daemon.windows.taking import ExchangeFolder, WindowTaker, meeting

WAITING = [sys.executable, "-c", "input()"]


@dataclass
class Run:
    """A process that runs, and the way by which windows of it are taken."""

    folder: Path
    process: subprocess.Popen[bytes]
    clock: StoppedClock = field(default_factory=StoppedClock)
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.identity = identity_of(self.process.pid)
        self.way = OnDemand(self.folder, self.clock)
        self.way.daemon.start()
        self.taker = WindowTaker(self.clock, self.records.append)

    def begin(self, request: WindowRequest | None = None) -> int:
        """Begin a window of the process."""
        return self.taker.begin({self.identity: self.way}, request or WindowRequest())

    async def configuration(self) -> str:
        """Ask for a configuration as torch does until there is one."""
        with KinetoClient(self.folder) as client:
            text = ""
            while "ACTIVITIES_LOG_FILE" not in text:
                assert not self.records, "it was given up"
                text = (await client.ask(inquiry(self.identity.pid, 1)))[40:].decode()
        return text

    async def give_configuration(self) -> Path:
        """Ask for a configuration; returns where it wants the trace."""
        match = re.search(r"ACTIVITIES_LOG_FILE=(.*)\.json", await self.configuration())
        assert match
        return Path(f"{match[1]}_{self.identity.pid}.json")

    async def inquire(self, times: int, kinds: int = 3) -> None:
        """Ask for work, as a process does that has none."""
        with KinetoClient(self.folder) as client:
            for _ in range(times):
                assert (await client.ask(inquiry(self.identity.pid, 1, kinds=kinds)))[40:] == b""

    def goes_by(self, seconds: float) -> bool:
        """Let time go by; says whether anything came of it."""
        self.clock.advance(seconds)
        return bool(self.records)

    async def outcome(self) -> WindowTaken:
        """Return the window's record once it is there, with its event behind it."""
        await eventually(lambda: len(self.records) >= 2, "the record of the window")
        event, window = self.records
        assert isinstance(window, WindowTaken)
        assert isinstance(event, EventHappened)
        assert (event.kind, event.identity, window.identity) == (
            "window",
            self.identity,
            self.identity,
        )
        assert not window.error or window.error in event.text
        return window


@pytest.fixture
async def run(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Run]:
    monkeypatch.setattr(
        kineto, "ANSWERED_WITHIN_NS", int(DEADLINE_S * SECOND_NS)
    )  # its clients wait
    process = subprocess.Popen(WAITING, stdin=subprocess.PIPE)
    run = Run(tmp_path_factory.mktemp("w"), process)
    yield run
    await run.taker.close()
    run.way.daemon.close()
    process.kill()
    process.wait()


def steps_of_two() -> bytes:
    script = (
        TraceScript()
        .op("aten::add", 0, 2)
        .op("Optimizer.step#SGD.step", 5, 5)
        .op("aten::add", 12, 3)
    )
    return script.op("Optimizer.step#SGD.step", 20, 5).text()


async def test_window_is_reduced_and_kept_with_its_trace(run: Run) -> None:
    asked_ns = run.begin()
    trace = await run.give_configuration()
    trace.write_bytes(steps_of_two())
    window = await run.outcome()
    assert (window.error, window.asked_ns, window.source) == ("", asked_ns, "kineto")
    assert (window.start_ns, window.end_ns) == (0, 25_000)
    assert [(step.start_ns, step.end_ns) for step in window.steps] == [
        (0, 10_000),
        (10_000, 25_000),
    ]
    assert {operator.name: operator.calls for operator in window.operators} == {
        "aten::add": 2,
        "Optimizer.step#SGD.step": 2,
    }
    assert window.trace is not None
    assert gzip.decompress(window.trace) == steps_of_two()
    assert window.trace_bytes == len(steps_of_two())
    await eventually(lambda: not trace.exists(), "the removal of the trace")


async def test_window_of_seconds_begins_in_the_middle_of_a_step(run: Run) -> None:
    run.begin(WindowRequest(seconds=0.5))
    (await run.give_configuration()).write_bytes(steps_of_two())
    assert [(step.start_ns, step.end_ns) for step in (await run.outcome()).steps] == [
        (10_000, 25_000)
    ]


async def test_window_of_seconds_that_was_not_begun_is_asked_for_once_more(run: Run) -> None:
    run.clock.jump_ns = -3 * SECOND_NS
    run.begin(WindowRequest(seconds=0.5))
    # The begin lies on the wall clock, half a second from where Kineto would place it: its warm-up
    # and 2 s ahead.
    assert (
        f"PROFILE_START_TIME={run.clock.now_ns() // MILLISECOND_NS - 500}\n"
        in await run.configuration()
    )
    await run.inquire(times=2)
    await run.inquire(times=9, kinds=1)  # it is at a trace of somebody else's
    assert run.way.daemon.given == {run.identity.pid: 2}
    await run.inquire(times=1)
    again = await run.configuration()
    assert "PROFILE_START_TIME" not in again
    await run.inquire(times=3)
    assert "has begun no window, twice" in (await run.outcome()).error


async def test_window_of_steps_is_waited_for_however_long_they_are(run: Run) -> None:
    run.begin()
    trace = await run.give_configuration()
    await run.inquire(times=100)
    trace.write_bytes(steps_of_two())
    assert (await run.outcome()).error == ""


async def test_process_that_ends_in_the_middle_is_said(run: Run) -> None:
    run.begin()
    await run.give_configuration()
    run.process.kill()
    assert (
        await run.outcome()
    ).error == f"process {run.identity.pid} ended before its trace was written"


@pytest.mark.parametrize(
    ("asks", "patience_s", "why"),
    [
        (False, ondemand.ANSWER_TIMEOUT_S, "did not ask for work within 20 s"),
        (True, ondemand.TRACE_TIMEOUT_S, "no trace.*--seconds"),
    ],
)
async def test_process_that_never_asks_or_writes_is_given_up(
    run: Run, asks: bool, patience_s: float, why: str
) -> None:
    run.begin()
    if asks:
        await run.give_configuration()
    await eventually(lambda: run.goes_by(patience_s), "the end of patience")
    assert re.search(why, (await run.outcome()).error)


@pytest.mark.parametrize(
    ("data", "is_what"),
    [
        *((data, "damaged") for data in (b"", b"{", steps_of_two()[:-30])),
        (TraceScript().text(), "empty"),
    ],
)
async def test_damaged_or_empty_trace_is_said_and_the_next_window_works(
    run: Run, data: bytes, is_what: str
) -> None:
    run.begin()
    (await run.give_configuration()).write_bytes(data)
    assert f"the trace is {is_what}" in (await run.outcome()).error
    run.records.clear()
    run.clock.advance(1)
    run.begin()
    (await run.give_configuration()).write_bytes(steps_of_two())
    assert (await run.outcome()).error == ""


async def test_there_is_one_window_at_a_time_and_the_end_of_the_session_gives_it_up_without_a_word(
    run: Run,
) -> None:
    assert not run.taker.is_taking
    run.begin()
    assert run.taker.is_taking
    with pytest.raises(SessionFailed, match="at a window already"):
        run.begin()
    await run.taker.close()
    assert run.records == []


def test_a_folder_for_a_process_is_its_users_alone_and_gone_in_the_end() -> None:
    with meeting(os.getpid()) as place:
        assert place.there.stat().st_mode & 0o777 == 0o700
    assert not place.there.exists()


REDUCING = "windows.reduction"


def test_a_trace_is_nobodys_to_read_before_a_byte_of_it_is_read() -> None:
    """Any user may have written it."""
    begun = beginning_of(REDUCING, "asuser.become", "windows.trace.read_text")
    assert begun == [f"become{tuple(processes.NOBODY)}", "read_text"]


@pytest.mark.requires("root")
def test_root_does_not_reduce_a_trace() -> None:
    words = [sys.executable, "-m", f"profd.daemon.{REDUCING}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:  # it waits for the trace
            until(lambda: processes.owner(process.pid) == processes.NOBODY, "it is nobody's")
        finally:
            process.kill()


of_another_user = pytest.mark.requires("root", "setpriv")
FILE = "trace.json"


@pytest.fixture
def place() -> Iterator[ExchangeFolder]:
    """Meet a process of nobody's."""
    with process_of_plain_user() as pid, meeting(pid) as place:
        yield place


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Have a file of root's alone."""
    path = tmp_path / "secret"
    path.write_text("secret")
    path.chmod(0o600)
    return path


@of_another_user
@pytest.mark.parametrize(
    "plant",
    [os.symlink, os.link, lambda _, path: os.mkfifo(path)],
    ids=["link", "second name", "pipe"],
)
def test_files_of_others_are_not_read(
    plant: Callable[[Path, Path], None], place: ExchangeFolder, secret: Path
) -> None:
    """And nobody waits for a pipe."""
    plant(secret, place.there / FILE)
    assert place.has(FILE) == (plant is os.link)
    with pytest.raises(WindowFailed, match=r"left no trace\.json"), place.opened(FILE):
        pass


@of_another_user
def test_what_was_opened_is_what_is_read(place: ExchangeFolder, secret: Path) -> None:
    assert place.there.stat().st_uid == NOBODY
    (place.there / FILE).write_text("{}")
    assert place.has(FILE)
    with place.opened(FILE) as opened:
        (place.there / FILE).unlink()
        (place.there / FILE).symlink_to(secret)
        assert os.read(opened, 99) == b"{}"


@of_another_user
@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_is_never_written_through_a_link(
    place: ExchangeFolder, secret: Path, is_there: bool
) -> None:
    wanted = secret if is_there else secret.with_name("new")
    (place.there / FILE).symlink_to(wanted)
    with pytest.raises(OutputUnwritable):
        place.files.write(place.there / FILE, b"text of ours")
    assert secret.read_text() == "secret"
    assert not secret.with_name("new").exists()


@of_another_user
def test_what_is_written_is_the_users(place: ExchangeFolder) -> None:
    place.files.write(place.there / FILE, b"text")
    state = (place.there / FILE).stat()
    assert (state.st_uid, state.st_mode & 0o777, state.st_size) == (NOBODY, 0o600, 4)
