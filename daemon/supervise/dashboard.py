"""The dashboard as a process: a child of the launcher in the terminal's foreground, which may crash or be killed.

Knows how it is started and how it ended, nothing of what it shows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from enum import Enum

from profd.daemon import processes
from profd.daemon.store.records import Identity


class State(Enum):
    """What a dashboard's process does."""

    RUNNING = "runs"
    STOPPED = "is stopped, as by Ctrl-Z"
    LEFT = "ended by itself: the user left, or it told what went wrong"
    KILLED = "ended by a signal: the terminal is as it left it"


class Dashboard:
    """A running dashboard."""

    def __init__(self, command: Sequence[str], pty_fd: int, mask: Iterable[int]) -> None:
        """Start it with ``pty_fd`` open under the same number, and with the signal mask ``mask``."""
        os.set_inheritable(pty_fd, True)
        try:
            self.pid = os.posix_spawn(command[0], list(command), os.environ, setsigmask=mask)
        finally:
            os.set_inheritable(pty_fd, False)
        stat = processes.read_stat(self.pid)
        self.identity = Identity(self.pid, stat.start_ticks if stat else 0)

    def poll(self) -> State:
        """Return what the process does now; not to be called again once it has ended."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return State.RUNNING
        if os.WIFSTOPPED(status):
            return State.STOPPED
        return State.KILLED if os.WIFSIGNALED(status) else State.LEFT

    def end(self) -> None:
        """End a dashboard that has not ended, and wait for that."""
        for number in (signal.SIGTERM, signal.SIGCONT):
            os.kill(self.pid, number)
        os.waitpid(self.pid, 0)

    def hang_up(self) -> None:
        """Tell it that its terminal is gone."""
        os.kill(self.pid, signal.SIGHUP)

    def resume(self) -> None:
        """Let a stopped dashboard go on; to one that runs it would be a second start."""
        stat = processes.read_stat(self.pid)
        if stat is not None and stat.state == "T":
            os.kill(self.pid, signal.SIGCONT)
