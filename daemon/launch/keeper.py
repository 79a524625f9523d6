"""The keeper of a script's terminal: what a shell is to its job, below the dashboard.

When a session's leader ends, the kernel hangs up its foreground group. A script that led the
session of its pseudo-terminal would thus end what it leaves in the background. So the keeper leads
the session. It is the script's parent, gives it the terminal as a shell does, takes the terminal
back when the script ends, and stays until nobody uses it. As the parent it also makes stops
possible: the kernel ignores Ctrl-Z in a group without a parent in the same session.

It depends on nobody, only waits, and ignores all signals but SIGKILL and SIGSTOP.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct

from profd.daemon.forks import become_helper, let_go_of_all_but
from profd.daemon.launch.channel import offer, packet_pair
from profd.daemon.launch.script import Script, Start, read_failure
from profd.daemon.launch.terminal import PseudoTerminal

_STATUS = struct.Struct("=i")


class KeptScript(Script):
    """A script whose parent is the keeper, which reports what happens to it."""

    def __init__(self, pid: int, keeper_pid: int, news: socket.socket) -> None:
        super().__init__(pid)
        self._keeper_pid, self._news = keeper_pid, news

    def _next_status(self) -> int | None:
        """Return the status that the keeper reports.

        If the keeper was killed, its own status counts: the terminal ended with it.
        """
        try:
            if packet := self._news.recv(_STATUS.size, socket.MSG_DONTWAIT):
                return int(_STATUS.unpack(packet)[0])
        except BlockingIOError:
            return None
        except OSError:
            pass
        return os.waitpid(self._keeper_pid, 0)[1]


def keep_script(start: Start, terminal: PseudoTerminal) -> KeptScript:
    """Start a command on a terminal, below a keeper; this process must have only one thread.

    Raises CommandNotFound or CommandNotExecutable, with nothing left behind, and OSError if no
    process can be forked.
    """
    news, its_end = packet_pair()
    failure_fd, report_fd = os.pipe()
    try:
        keeper_pid = os.fork()
        if keeper_pid == 0:
            try:
                _keep(start, terminal, its_end, report_fd)
            finally:
                os._exit(1)
    except OSError:
        os.close(failure_fd)
        news.close()
        raise
    finally:
        os.close(report_fd)
        its_end.close()
    packet = news.recv(_STATUS.size)
    if packet:
        start.open_gate()
    reason = read_failure(failure_fd)
    if reason or not packet:
        news.close()
        os.kill(keeper_pid, signal.SIGKILL)
        os.waitpid(keeper_pid, 0)
        if not reason:
            raise OSError("the keeper of its terminal has no process left")
        raise start.fail(reason)
    return KeptScript(_STATUS.unpack(packet)[0], keeper_pid, news)


def _keep(start: Start, terminal: PseudoTerminal, launcher: socket.socket, report_fd: int) -> None:
    """Do the keeper's work, in its process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    launcher_pid = os.getppid()
    terminal.lead()
    pid = os.fork()
    if pid == 0:
        start.become_script(report_fd)
    os.chdir("/")
    let_go_of_all_but({terminal.slave_fd, terminal.lifeline_fd, launcher.fileno()})
    become_helper("terminal")
    _tell(launcher, pid, launcher_pid)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        _tell(launcher, status, launcher_pid)
    with contextlib.suppress(OSError):
        # When this process ends, only its own group is hung up.
        os.tcsetpgrp(terminal.slave_fd, os.getpid())
    # From now on only processes that the script has left behind hold the terminal open.
    os.close(terminal.slave_fd)
    _tell(launcher, status, launcher_pid)
    launcher.close()
    os.read(terminal.lifeline_fd, 1)  # until the last reader of the terminal is gone
    os._exit(0)


def _tell(launcher: socket.socket, number: int, launcher_pid: int) -> None:
    offer(launcher, _STATUS.pack(number))
    with contextlib.suppress(OSError):
        if os.getppid() == launcher_pid:
            os.kill(launcher_pid, signal.SIGCHLD)
