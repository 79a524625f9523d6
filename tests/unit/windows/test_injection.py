"""The text that a process is given, the folder where it meets profd, and what becomes of its
report.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.clocks import StoppedClock
from support.interpreters import standing
from support.kinetotraces import TraceScript
from support.synthetic import identity_of

from profd.daemon.store.records import Identity
from profd.daemon.userfiles import UserFiles
from profd.daemon.windows import gdb, injection, intarget
from profd.daemon.windows.injection import Injection, execute, helper_for
from profd.daemon.windows.intarget import Order
from profd.daemon.windows.request import WindowFailed, WindowRequest
from profd.daemon.windows.taking import ExchangeFolder


@pytest.fixture
def identity() -> Iterator[Identity]:
    with standing() as program:
        yield identity_of(program.pid)


def order(folder: Path) -> Order:
    return injection.order_of(
        WindowRequest(steps=7, memory=True), ExchangeFolder(UserFiles(), folder)
    )


def test_text_starts_a_thread_that_takes_the_order_and_names_nothing(tmp_path: Path) -> None:
    names: dict[str, object] = {"open": None, "exec": None, "e": 1}
    before = set(threading.enumerate())
    exec(injection.text_of(order(tmp_path / "gone")), names)
    for thread in set(threading.enumerate()) - before:
        assert thread.name == "profd-window"
        thread.join()
    assert set(names) == {"open", "exec", "e", "__builtins__"}


def test_order_says_all_that_was_asked_for(tmp_path: Path) -> None:
    wanted = order(tmp_path)
    assert (wanted.folder, wanted.steps, wanted.seconds) == (str(tmp_path), 7, None)
    assert (wanted.shapes, wanted.memory, wanted.stacks) == (True, True, False)
    assert eval(repr(wanted), {"Order": Order}) == wanted  # noqa: S307


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_thread_that_cannot_be_started_reaches_nobody(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Thread", failing(error))
    exec(injection.text_of(order(Path("/gone"))), {})


def test_interrupt_of_the_user_in_that_moment_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", failing(KeyboardInterrupt()))
    text = injection.text_of(order(Path("/gone"))) + "\nfor _ in range(1000): pass\n"
    with pytest.raises(KeyboardInterrupt):
        exec(
            compile(text, "window", "exec"), {}
        )  # of a text Python would note it, and end all the tests by SIGINT


def failing(error: BaseException) -> Callable[..., object]:
    def fail(**_: object) -> object:
        raise error

    return fail


class Played(Injection):
    """An injection that is executed by a function of the test, in the place of the process."""

    def __init__(self, clock: StoppedClock, play: Callable[[Order], None]) -> None:
        super().__init__(None, clock)
        self._play = play

    async def _execute(self, pid: int, order: Order, place: ExchangeFolder) -> None:
        self._play(order)


def report(error: str) -> Callable[[Order], None]:
    def play(order: Order) -> None:
        intarget._write(order.folder, intarget.BEGUN, "")
        intarget._write(order.folder, intarget.REPORT, f'{{"error": "{error}"}}')

    return play


async def test_trace_is_given_and_gone_afterwards(identity: Identity) -> None:
    places: list[Path] = []

    def play(order: Order) -> None:
        places.append(Path(order.folder))
        (Path(order.folder) / intarget.TRACE).write_bytes(
            TraceScript().op("aten::add", 0, 2).text()
        )
        report("")(order)

    async with Played(StoppedClock(), play).trace(identity, WindowRequest(), 1) as trace:
        assert b"aten::add" in os.read(trace, 1 << 16)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(trace)
    assert not places[0].exists()


def linked(order: Order) -> None:
    (Path(order.folder) / intarget.TRACE).symlink_to("/etc/passwd")
    report("")(order)


def damaged(order: Order) -> None:
    report("")(order)
    (Path(order.folder) / intarget.REPORT).write_text("{")


def endless(order: Order) -> None:
    report("")(order)
    os.truncate(
        Path(order.folder) / intarget.REPORT, 1 << 40
    )  # it takes nothing on the disk, and all memory to read


def begun(order: Order) -> None:
    intarget._write(order.folder, intarget.BEGUN, "")


class PassingClock(StoppedClock):
    """A clock by which every look takes ten seconds."""

    def now_ns(self) -> int:
        self.advance(10.0)
        return super().now_ns()


@pytest.mark.parametrize(
    ("clock", "play", "meant"),
    [
        (
            StoppedClock,
            report("it has not imported torch"),
            r"took none .it has not imported torch",
        ),
        (
            StoppedClock,
            linked,
            r"left no trace\.json",
        ),  # a link in the place of a trace is not followed
        (StoppedClock, damaged, "cannot be read"),
        (StoppedClock, endless, "cannot be read"),
        (StoppedClock, report("long" * (1 << 15)), "cannot be read"),  # no more than a part is
        (PassingClock, lambda _: None, "no safe point within 30 s"),
        (PassingClock, begun, "has not written its window within 180 s"),
    ],
)
async def test_a_window_that_is_not_taken_says_why(
    identity: Identity, clock: type[StoppedClock], play: Callable[[Order], None], meant: str
) -> None:
    with pytest.raises(WindowFailed, match=meant):
        async with Played(clock(), play).trace(identity, WindowRequest(), 1):
            pass


def run_by(version: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(version_info=version, executable="/opt/python")
    monkeypatch.setattr(injection, "sys", own)


def test_source_is_the_means_and_an_own_interpreter_asks_one_of_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Injection(None, StoppedClock()).source == gdb.SOURCE == "gdb"
    assert (
        Injection("/usr/bin/python3.14", StoppedClock()).source == injection.SOURCE == "remote_exec"
    )
    run_by((3, 14, 0), monkeypatch)
    assert helper_for("3.14") == "/opt/python"
    run_by((3, 15, 1), monkeypatch)
    assert helper_for("3.15.0") == "/opt/python"


async def test_helper_is_given_the_text_as_a_file(
    identity: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    async def execute(helper: str, pid: int, script: Path) -> None:
        texts.append(f"{helper} {pid} {script.read_text()[:4]}")
        report("")(order(script.parent))
        (script.parent / intarget.TRACE).touch()

    monkeypatch.setattr(injection, "execute", execute)
    async with Injection("/usr/bin/python3.14", StoppedClock()).trace(identity, WindowRequest(), 1):
        pass
    assert texts == [f"/usr/bin/python3.14 {identity.pid} try:"]


def test_interpreter_of_another_version_is_looked_for_where_that_has_remote_exec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    run_by((3, 14, 0), monkeypatch)
    found = {
        version: helper_for(version) for version in ("3.15", "3.10", "3.13", "3.13.2", "", "3")
    }
    assert found == {**dict.fromkeys(found), "3.15": "/usr/bin/python3.15"}
    monkeypatch.setattr("shutil.which", lambda _: None)
    run_by((3, 11, 0), monkeypatch)
    assert helper_for("3.15") is None


def fake(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize("may_attach", [True, False])
async def test_the_helper_runs_as_the_user_of_the_process_where_that_may_attach(
    may_attach: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[dict[str, Any]] = []

    async def attempt(helper: str, pid: int, script: Path, rights: dict[str, Any]) -> str:
        tried.append(rights)
        return "" if may_attach or not rights else "PermissionError"

    monkeypatch.setattr(injection, "_try", attempt)
    monkeypatch.setattr(injection, "as_owner", lambda pid: {"user": pid})
    await execute("python3.14", 7, Path("/tmp/window.py"))
    assert tried == [{"user": 7}, *[{}] * (not may_attach)]


async def test_process_and_file_are_handed_to_the_helper_which_may_refuse_or_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    await execute(
        fake(tmp_path, f"open({str(said)!r}, 'w').write(repr(sys.argv))"), 7, Path("/tmp/window.py")
    )
    assert said.read_text().endswith(
        "sys.remote_exec(int(sys.argv[1]), sys.argv[2])', '7', '/tmp/window.py']"
    )
    helper = fake(
        tmp_path, "sys.exit('RuntimeError: Remote debugging is not enabled in the remote process.')"
    )
    with pytest.raises(WindowFailed, match=r"could not reach process 7 .*not enabled"):
        await execute(helper, 7, Path("/tmp/window.py"))
    monkeypatch.setattr(gdb, "TIMEOUT_S", 0.2)
    with pytest.raises(WindowFailed, match="not done with process 7 within 0 s"):
        await execute(
            fake(tmp_path, "sys.stdin = None; import signal; signal.pause()"), 7, Path("/x")
        )
