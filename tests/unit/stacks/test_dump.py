"""One look at stacks: repeated where it fails, given up where it hangs.

The contract of py-spy has the real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from support.pyspy.standin import Fault, StandIn
from support.waiting import until

from profd.daemon import boundedprograms
from profd.daemon.stacks import dump
from profd.daemon.stacks.dump import DumpFailed, take_dump

UNNAMED = (
    b'[{"pid": 1, "thread_id": 1, "os_thread_id": null, "thread_name": null, "active": true, '
    b'"owns_gil": false,'
    b' "frames": []}]'
)


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    """End what was given up and wait for that, so that no test after it meets it."""
    yield
    for hanging in boundedprograms._hanging.values():
        if hanging.poll() is None:
            os.kill(hanging.pid, signal.SIGKILL)
    until(
        lambda: all(one.poll() is not None for one in boundedprograms._hanging.values()),
        "what was given up to end",
    )
    boundedprograms._hanging.clear()


def test_stack_is_seen_from_the_innermost_frame_on(py_spy: StandIn) -> None:
    (thread,) = take_dump(os.getpid())
    assert [(frame.name, frame.line) for frame in thread.frames] == [
        ("train", 10),
        ("<module>", 96),
    ]
    assert (thread.os_thread_id, thread.thread_name) == (os.getpid(), "MainThread")
    arguments = py_spy.wait("start", command="dump").arguments
    assert arguments == ("dump", "--nonblocking", "--json", "--pid", str(os.getpid()))


@pytest.mark.parametrize(
    "fault", [Fault("start", "exit"), *(Fault(trace=trace) for trace in ("none", "cut", "garbage"))]
)
def test_look_that_fails_or_is_no_dump_is_repeated(py_spy: StandIn, fault: Fault) -> None:
    py_spy.plays(dump=UNNAMED)
    py_spy.fails(fault._replace(command="dump", last=2))
    (thread,) = take_dump(os.getpid())
    assert (thread.thread_name, thread.os_thread_id) == (None, None)
    assert len(py_spy.events("start", command="dump")) == 3


def test_look_that_always_fails_says_why_on_one_line(py_spy: StandIn) -> None:
    says = (
        "Error: Failed to open\nCaused by:\n    0: Permission denied\n    1: "
        "deeper\n\nBacktrace:\n   0: main"
    )
    py_spy.fails(Fault("start", "exit", says, command="dump"))
    with pytest.raises(DumpFailed, match=r"^Failed to open — Permission denied$"):
        take_dump(os.getpid())


def test_py_spy_that_hangs_is_given_up_and_killed(
    py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "_TIMEOUT_S", 0.1)
    py_spy.fails(Fault("start", "hang", command="dump"))
    with pytest.raises(DumpFailed, match="did not answer"):
        take_dump(os.getpid())
    assert boundedprograms._hanging.pop(("dump", os.getpid())).wait() == -signal.SIGKILL


class Undying(subprocess.Popen[bytes]):
    """A process that waits in the kernel: no signal ends it, and it answers nothing."""

    def communicate(
        self, input: bytes | None = None, timeout: float | None = None
    ) -> tuple[bytes, bytes]:
        raise subprocess.TimeoutExpired(self.args, timeout or 0)

    def wait(self, timeout: float | None = None) -> int:
        raise AssertionError("it would be waited for without end")

    def kill(self) -> None:
        pass


def test_an_undying_py_spy_is_not_awaited_nor_started_again(
    py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Undying)
    py_spy.fails(Fault("start", "hang", command="dump"))
    with pytest.raises(DumpFailed, match="did not answer"):
        take_dump(os.getpid())
    with pytest.raises(DumpFailed, match="still waits"):
        take_dump(os.getpid())
    (hanging,) = boundedprograms._hanging.values()
    os.kill(hanging.pid, signal.SIGKILL)
    until(lambda: hanging.poll() is not None, "it ends")
    with pytest.raises(DumpFailed, match="did not answer"):
        take_dump(os.getpid())
