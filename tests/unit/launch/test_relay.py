"""The relay between a script's terminal and the real one: it always reads, shows when it is to, and
outlives all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.present import there
from support.synthetic import identity_of
from support.waiting import DEADLINE_S, until

from profd.daemon import processes
from profd.daemon.launch.channel import (
    CHUNK_BYTES,
    LARGEST_BYTES,
    ScriptWrote,
    decode,
    make_channel,
)
from profd.daemon.launch.relay import Relay, _read_all
from profd.daemon.launch.screen import SharedScreen
from profd.daemon.launch.terminal import RESET, RealTerminal
from profd.daemon.store.records import Identity


class Ends:
    """A relay on a pseudo-terminal, with a pipe for the real one's screen.

    The script is this process.
    """

    def __init__(self) -> None:
        self.master_fd, self.script_fd = os.openpty()
        tty.setraw(self.script_fd)
        os.set_blocking(self.master_fd, False)
        self.screen_fd, self.shown_fd = os.pipe()
        self.channel, self.session = make_channel()
        self.lifeline_fd, anchor_fd = os.pipe()
        self.relay = Relay(self.master_fd, self.shown_fd, self.channel, anchor_fd)
        os.close(anchor_fd)
        self.pid = self.relay._pid
        self.relay.order(script=identity_of(os.getpid()), is_shown=True)

    def write(self, data: bytes) -> None:
        """Write as the script, and wait until the session has it."""
        os.write(self.script_fd, data)
        self.expect_kept(data)

    def expect_kept(self, data: bytes) -> None:
        """Wait until the session has this output."""
        kept = b""
        while len(kept) < len(data):
            message = decode(self.session.recv(LARGEST_BYTES))
            assert isinstance(message, ScriptWrote)
            kept += message.data
        assert kept == data

    def close_script(self) -> None:
        os.close(self.script_fd)
        self.script_fd = -1

    def lose_launcher(self) -> None:
        """Let go of the relay, as the kernel does when a launcher is killed."""
        self.relay._end.close()

    def reads(self) -> int:
        """Return how often the relay has read, to any avail or none."""
        return int(Path(f"/proc/{self.pid}/io").read_text().split("syscr:")[1].split()[0])

    def state(self) -> str:
        stat = processes.read_stat(self.pid)
        return stat.state if stat else "X"

    def close(self) -> None:
        if self.state() not in "ZX":
            os.kill(self.pid, signal.SIGKILL)
        if self.relay._pid:
            os.waitpid(self.pid, 0)
        for fd in (self.master_fd, self.script_fd, self.screen_fd, self.shown_fd, self.lifeline_fd):
            if fd >= 0:
                os.close(fd)
        self.session.close()
        self.channel.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def test_hidden_relay_leaves_the_terminal_alone_and_a_notice_is_said_once(ends: Ends) -> None:
    ends.relay.order(is_shown=False)
    ends.write(b"hidden")
    ends.relay.order(is_shown=True, notice=b"notice ")
    assert os.read(ends.screen_fd, 100) == b"notice "
    ends.relay.order(dashboard=None)
    ends.write(b"shown")
    assert os.read(ends.screen_fd, 100) == b"shown"


def test_a_screen_that_is_gone_and_a_session_that_reads_nothing_do_not_stop_the_script(
    ends: Ends,
) -> None:
    os.close(ends.screen_fd)
    ends.screen_fd = -1
    for _ in range(500):
        os.write(ends.script_fd, b"x" * 4000)
    ends.expect_kept(b"x" * 4000 * 500)  # and nothing is lost meanwhile


LEFT_BEHIND = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # it is told when its terminal hangs up
signal.signal(signal.SIGHUP, lambda *_: os._exit(1))
os.write(2, b"ready\\n")
while os.read(int(sys.argv[1]), 1):
    os.write(1, b"x" * 4000)
    os.write(2, b"wrote\\n")
"""


def test_a_process_that_the_script_leaves_behind_is_not_hung_up(ends: Ends) -> None:
    """Only the relay holds the other end of its terminal, as it does once the launcher has ended."""
    heard_fd, told_fd = os.pipe()
    words = [sys.executable, "-c", LEFT_BEHIND, str(heard_fd)]
    terminal, pipe = ends.script_fd, subprocess.PIPE
    with subprocess.Popen(
        words,
        stdin=terminal,
        stdout=terminal,
        stderr=pipe,
        pass_fds=[heard_fd],
        start_new_session=True,
    ) as left:
        os.close(heard_fd)
        said = there(left.stderr)
        try:
            assert said.readline() == b"ready\n"
            os.close(ends.screen_fd)  # the real terminal is closed, too
            ends.screen_fd = -1
            ends.close_script()
            ends.relay.order(has_ended=True)
            os.close(ends.master_fd)
            ends.master_fd = -1
            ends.lose_launcher()
            for _ in range(100):
                os.write(told_fd, b"x")
                assert said.readline() == b"wrote\n"
        finally:
            os.close(told_fd)
        assert left.wait(DEADLINE_S) == 0
    until(lambda: ends.state() == "Z", "the end of the relay")


def test_end_does_not_wait_for_those_the_script_left_behind(ends: Ends) -> None:
    os.write(ends.script_fd, b"last words")
    ends.relay.order(has_ended=True)  # with the script's side still open
    assert os.read(ends.screen_fd, 100) == b"last words"
    ends.expect_kept(b"last words")
    ends.lose_launcher()
    for _ in range(100):
        os.write(ends.script_fd, b"x" * 4000)  # they are not held up, and not hung up
        left = 4000
        while left:
            left -= len(os.read(ends.screen_fd, left))  # and shown, as the terminal is nobody's now
    assert ends.state() not in "ZX"
    ends.close_script()
    until(lambda: ends.state() == "Z", "the end of the relay")


def test_a_script_may_close_its_terminal_and_open_it_again(ends: Ends) -> None:
    name = os.ttyname(ends.script_fd)
    ends.lose_launcher()
    ends.write(b"before")
    before = ends.reads()
    ends.close_script()
    until(lambda: ends.reads() > before + 1, "its looks at a closed terminal")
    ends.script_fd = os.open(name, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(ends.script_fd)
    ends.write(b"after")


def test_it_ends_with_a_launcher_that_started_no_script() -> None:
    master_fd, script_fd = os.openpty()
    channel, session = make_channel()
    relay = Relay(master_fd, 1, channel, channel.fileno())
    pid = relay._pid
    os.close(script_fd)
    relay._end.close()
    assert os.waitpid(pid, 0) == (pid, 0)
    os.close(master_fd)
    channel.close()
    session.close()


def test_a_stopped_dashboard_ends_with_its_launcher_and_leaves_the_screen(ends: Ends) -> None:
    with subprocess.Popen(["sleep", "1000"]) as dashboard:
        ends.relay.order(is_shown=False)
        ends.relay.order(dashboard=identity_of(dashboard.pid))
        dashboard.send_signal(signal.SIGSTOP)
        ends.lose_launcher()
        try:
            assert dashboard.wait(DEADLINE_S) == -signal.SIGTERM
        finally:
            dashboard.kill()
        assert os.read(ends.screen_fd, len(RESET)) == RESET
        assert b"runs on" in os.read(ends.screen_fd, 1000)
        ends.write(b"the script goes on")
        assert os.read(ends.screen_fd, 1000) == b"the script goes on"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTSTP])
def test_it_is_deaf(number: int) -> None:
    blocked = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
    )
    ends = Ends()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    os.kill(ends.pid, number)
    ends.write(b"heard nothing")
    ends.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_launcher_sees_to_it_that_there_is_a_relay(ends: Ends, number: int) -> None:
    os.kill(ends.pid, number)
    os.waitid(os.P_PID, ends.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    ends.relay.revive()
    ends.write(b"goes on")
    assert os.read(ends.screen_fd, 100) == b"goes on"
    ends.close_script()
    ends.relay.order(has_ended=True)
    ends.channel.exited(0)  # the channel is the launcher's still
    ends.lose_launcher()


def test_what_a_script_writes_at_once_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """It may write, and end, before the screen has begun to show it."""
    far_fd, terminal_fd = os.openpty()
    tty.setraw(terminal_fd)
    channel, session = make_channel()
    screen = SharedScreen(RealTerminal(terminal_fd), channel)
    os.write(screen.pseudo_terminal.slave_fd, b"no such option")

    screen.start(Identity(os.getpid(), 0))
    screen.script_ended(Identity(os.getpid(), 0))

    assert capfd.readouterr().out == "no such option"
    for fd in (
        far_fd,
        terminal_fd,
        screen.pseudo_terminal.master_fd,
        screen.pseudo_terminal.anchor_fd,
    ):
        os.close(fd)
    channel.close()
    session.close()
    screen._relay._end.close()
    os.waitpid(screen._relay._pid, 0)


ASKING = [
    sys.executable,
    "-c",
    "from profd.daemon.launch.terminal import has_shell; print(has_shell())",
]


def answer(*, leads_session: bool, leads_job: bool, below_a_script: bool = False) -> str:
    """Ask in a process that leads a session, or a job, or belongs to the job of a shell's script."""
    words = ["sh", "-c", '"$@"; exit', "sh", *ASKING] if below_a_script else ASKING
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=True,
        start_new_session=leads_session,
        preexec_fn=(lambda: os.setpgid(0, 0)) if leads_job else None,
    ).stdout.strip()


def test_a_job_of_its_own_has_a_shell_and_a_session_leader_has_none() -> None:
    assert answer(leads_session=False, leads_job=True) == "True"
    assert answer(leads_session=False, leads_job=True, below_a_script=True) == "True"
    assert answer(leads_session=True, leads_job=False) == "False"
    assert answer(leads_session=True, leads_job=False, below_a_script=True) == "False"


def test_it_is_not_found_by_profds_name_and_holds_the_keepers_lifeline(ends: Ends) -> None:
    ends.write(b"it has begun")
    assert processes.command_line(ends.pid) == ("run-helper", "output")
    assert (processes.read_stat(ends.pid) or pytest.fail("gone")).comm == "run-helper"
    os.set_blocking(ends.lifeline_fd, False)
    with pytest.raises(BlockingIOError):
        os.read(ends.lifeline_fd, 1)


def test_late_output_waits_for_the_terminal(ends: Ends) -> None:
    ends.relay.order(is_shown=False, has_ended=True)
    read = ends.reads()
    os.write(ends.script_fd, b"late\r\n")
    until(lambda: ends.reads() > read, "its look at the terminal")
    ends.lose_launcher()
    assert (
        os.read(ends.screen_fd, 100) == b"late\n"
    )  # the shell's terminal makes its own ends of lines


@pytest.mark.parametrize("before", [b"half a ", b"whole\r\n"])
def test_what_is_said_after_the_launchers_end_is_a_line_of_its_own(
    ends: Ends, before: bytes
) -> None:
    """And an end of a line that comes in two reads is one."""
    ends.write(before)
    ends.lose_launcher()
    said = b"profd was ended; the command (pid %d) runs on\n" % os.getpid()
    expected = before + (b"line\n" + said if before.startswith(b"half") else said + b"line\n")
    ends.write(b"line\r")
    ends.write(b"\nlast\r\n")
    expected += b"last\n"
    shown = b""
    while len(shown) < len(expected):
        shown += os.read(ends.screen_fd, 1000)
    assert shown == expected


@pytest.mark.parametrize(
    ("gives", "reads"),
    [
        ([4096, 4096, BlockingIOError()], [8192]),
        ([4096, OSError(5, "closed")], [4096]),
        ([4096, 0], [4096]),
        ([4096] * 9, [CHUNK_BYTES, 4096]),
    ],
)
def test_what_a_terminal_has_is_one_message_though_the_kernel_gives_it_in_pieces(
    monkeypatch: pytest.MonkeyPatch, gives: list[int | OSError], reads: list[int]
) -> None:
    rest = iter(gives)

    def read(_fd: int, most: int) -> bytes:
        given = next(rest, BlockingIOError())
        if isinstance(given, OSError):
            raise given
        assert given <= most
        return bytes(given)

    monkeypatch.setattr(os, "read", read)
    found = [len(_read_all(0)) for _ in reads]
    monkeypatch.undo()
    assert found == reads
