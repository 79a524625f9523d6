"""What real threads wait for, and which process holds the other end of a pipe."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.present import there
from support.waiting import DEADLINE_S, until

from profd.daemon import processes
from profd.daemon.hangs import waits
from profd.daemon.hangs.waits import Wait, holders, name_of_stranger, pipe_of, read_wait


@pytest.fixture(autouse=True)
def _looks_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: 0.0))


def name_of(pid: int) -> str:
    return f"pid {pid}"


@contextlib.contextmanager
def thread_in(wait: Callable[[], object], end: Callable[[], object]) -> Iterator[int]:
    """Run ``wait`` in a thread and yield its OS thread id; ``end`` makes it return."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        assert thread.native_id is not None
        yield thread.native_id
    finally:
        end()
        thread.join(DEADLINE_S)


def wait_of(os_tid: int, kind: str, pid: int = os.getpid()) -> Wait:
    """Look until a thread waits for what it is meant to."""

    def look() -> Wait | None:
        wait = read_wait(pid, os_tid, name_of)
        return wait if wait.kind == kind else None

    return until(look, f"a wait of kind {kind}")


def test_a_lock_a_child_and_a_stop_are_named() -> None:
    lock = threading.Lock()
    lock.acquire()
    with thread_in(lock.acquire, lock.release) as os_tid:
        assert wait_of(os_tid, "lock").text.startswith("a lock (futex")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with thread_in(child.wait, there(child.stdin).close) as os_tid:
        assert wait_of(os_tid, "child").text == f"waits for the end of pid {child.pid}"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        os.kill(child.pid, signal.SIGSTOP)
        try:
            assert wait_of(child.pid, "stopped", child.pid).text == "it is stopped by a signal"
        finally:
            child.kill()


def test_a_wait_for_a_pipe_names_the_process_at_its_other_end() -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=writing
    )
    with thread_in(lambda: os.read(reading, 1), lambda: os.write(writing, b"x")) as os_tid:
        text = wait_of(os_tid, "read").text
    child.communicate()
    assert text == f"reads a pipe; its writing end is held by pid {child.pid}"


def test_who_holds_a_pipe_is_unknown_if_looking_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    seconds = itertools.count()
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=seconds.__next__))
    with thread_in(lambda: os.read(reading, 1), lambda: os.write(writing, b"x")) as os_tid:
        text = wait_of(os_tid, "read").text
    assert text == "reads a pipe; who holds its writing end was not found in time"


def test_pipe_that_only_its_reader_could_fill() -> None:
    reading, writing = os.pipe()
    with thread_in(lambda: os.read(reading, 1), lambda: os.write(writing, b"x")) as os_tid:
        assert wait_of(os_tid, "read").text == "reads a pipe; it alone holds the writing end"
    os.close(writing)
    pipe = there(pipe_of(os.getpid(), reading))
    assert (holders(pipe, os.O_WRONLY), holders(pipe, os.O_RDONLY)) == ([], [os.getpid()])


def test_connection_and_where_it_leads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        here = socket.create_connection(("127.0.0.1", port))
        there, _ = server.accept()
        with thread_in(lambda: here.recv(1), lambda: there.send(b"x")) as os_tid:
            wait = wait_of(os_tid, "read")
            assert wait.text == f"reads a socket connected to 127.0.0.1:{port}"
            assert wait.is_transfer
        here.close()
        there.close()


def test_datagrams_come_from_the_far_end_by_udp() -> None:
    with (
        socket.socket(type=socket.SOCK_DGRAM) as server,
        socket.socket(type=socket.SOCK_DGRAM) as us,
    ):
        server.bind(("127.0.0.1", 0))
        us.connect(server.getsockname())
        address = us.getsockname()
        with thread_in(lambda: us.recv(1), lambda: server.sendto(b"x", address)) as os_tid:
            text = wait_of(os_tid, "read").text
        assert text == f"reads a socket connected to 127.0.0.1:{server.getsockname()[1]} by UDP"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nfs4", "reads {path} of files:/sets (nfs4 at /)"),
        ("fuse.sshfs", "reads {path} of files:/sets (fuse.sshfs at /)"),
        ("ext4", "reads {path}"),
    ],
)
def test_a_file_that_others_serve_is_named_with_its_server(
    kind: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shard.tar"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    mounts = f"files:/sets / {kind} rw 0 0\n"
    read_text = processes.read_text
    monkeypatch.setattr(
        processes, "read_text", lambda at: mounts if at.endswith("/mounts") else read_text(at)
    )
    monkeypatch.setattr(waits, "system_call", lambda *_: ("read", file, 0))
    assert read_wait(os.getpid(), os.getpid(), name_of).text == text.format(path=path)
    os.close(file)


_FORKS = """
import os, threading
lock, has_begun = threading.Lock(), threading.Event()
def hold():
    with lock:
        has_begun.set()
        threading.Event().wait()
threading.Thread(target=hold).start()
has_begun.wait()
child = os.fork()
if child:
    print(child, flush=True)
lock.acquire()
"""


def test_a_lock_that_was_held_during_a_fork_can_be_released_by_nobody() -> None:
    with subprocess.Popen([sys.executable, "-c", _FORKS], stdout=subprocess.PIPE) as parent:
        child = int(there(parent.stdout).readline())
        try:
            lost = ", and its process has no other thread that could release it: "
            lost += f"it is a fork of pid {parent.pid}, whose threads are gone in it"
            assert wait_of(child, "lock", child).text.endswith(lost)
            assert "no other thread" not in wait_of(parent.pid, "lock", parent.pid).text
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()


def test_a_lock_that_processes_share_may_be_released_by_another() -> None:
    program = "import multiprocessing as m; one = m.Lock(); one.acquire(); one.acquire()"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        try:
            assert "no other thread" not in wait_of(child.pid, "lock", child.pid).text
        finally:
            child.kill()


def test_poll_of_one_descriptor_is_a_read_of_it() -> None:
    reading, writing = os.pipe()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    with thread_in(poll.poll, lambda: os.write(writing, b"x")) as os_tid:
        wait = wait_of(os_tid, "read")
        assert "reads a pipe" in wait.text
        assert not wait.is_transfer  # it may have a timeout


def _select(terminal: int, reading: int) -> None:
    select.select([reading, terminal], [], [])


def _poll(terminal: int, reading: int) -> None:
    poll = select.poll()
    for fd in (reading, terminal):
        poll.register(fd, select.POLLIN)
    poll.poll()


def _epoll(terminal: int, reading: int) -> None:
    with select.epoll() as epoll:
        for fd in (reading, terminal):
            epoll.register(fd, select.EPOLLIN)
        epoll.poll()


@pytest.mark.parametrize("call", [_select, _poll, _epoll])
def test_a_prompt_that_waits_for_more_than_its_terminal_waits_for_that(
    call: Callable[[int, int], None],
) -> None:
    """IPython, the prompt of Python 3.13 and readline wait for descriptors of their own beside the
    terminal.
    """
    (master, terminal), (reading, writing) = os.openpty(), os.pipe()
    with thread_in(partial(call, terminal, reading), lambda: os.write(master, b"x\n")) as os_tid:
        assert wait_of(os_tid, "terminal").text == f"reads the terminal {os.ttyname(terminal)}"
    for fd in (master, terminal, reading, writing):
        os.close(fd)


def test_a_select_of_one_descriptor_is_a_read_of_it_and_of_several_a_wait_for_events() -> None:
    (reading, writing), (other, other_writing) = os.pipe(), os.pipe()
    with thread_in(
        lambda: select.select([reading], [], []), lambda: os.write(writing, b"x")
    ) as os_tid:
        assert "reads a pipe" in wait_of(os_tid, "read").text
    os.read(reading, 1)
    with thread_in(
        lambda: select.select([reading, other], [], []), lambda: os.write(writing, b"x")
    ) as os_tid:
        assert wait_of(os_tid, "events").text == "waits for any of 2 descriptors (pipe)"
    for fd in (reading, writing, other, other_writing):
        os.close(fd)


def test_who_writes_to_a_terminal_that_nobody_reads_waits_for_no_user() -> None:
    master, terminal = os.openpty()
    end = partial(os.close, master)
    with thread_in(lambda: os.write(terminal, b"x" * (1 << 20)), end) as os_tid:
        assert wait_of(os_tid, "write").text == f"writes the terminal {os.ttyname(terminal)}"
    os.close(terminal)


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("import time; time.sleep(600)", "sleep"),
        ("import signal; signal.pause()", "unknown"),
        ("while True: pass", "running"),
    ],
)
def test_other_processes(program: str, kind: str) -> None:
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        try:
            assert wait_of(child.pid, kind, child.pid).text
        finally:
            child.kill()


def test_strangers_have_the_kernels_names_and_ended_ones_wait_for_nothing() -> None:
    assert read_wait(2**22 + 1, 2**22 + 1, name_of) == Wait("unknown", "it is gone")
    assert holders((-1, -1), os.O_RDONLY) == []
    assert (
        name_of_stranger(os.getpid())
        == f"pid {os.getpid()} ({there(processes.read_stat(os.getpid())).comm})"
    )
