"""Find and give a script's place among sessions, process groups and terminals.

It is the place that the script would have if profd were not there.

A shell with job control makes each job a process group and gives it the terminal. ``setsid``,
``docker run`` and a terminal's window make a command the leader of a session. The script then gets
such a place of its own. A command that was started within a group of others (a shell script, a
pipeline) shares that group with profd: they are signaled and stopped together.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import signal
import termios
from collections.abc import Iterator
from dataclasses import dataclass

from profd.daemon import processes


class Leads(enum.Enum):
    """What the script leads."""

    NOTHING = "nothing"
    GROUP = "group"
    SESSION = "session"


@dataclass(frozen=True)
class ScriptPlace:
    """The place of a script that keeps the stdin, stdout and stderr of profd.

    ``terminal_fd`` is the controlling terminal, None if there is none, or if the script leads
    nothing. The script begins in the foreground if ``has_foreground``.
    """

    leads: Leads
    terminal_fd: int | None = None
    has_foreground: bool = False

    @property
    def _sessions_terminal(self) -> int | None:
        """The terminal of a script that leads a session on it."""
        return self.terminal_fd if self.leads is Leads.SESSION else None

    def let_go(self) -> None:
        """Leave the terminal to the script if the script is to lead a session on it.

        Call it before the script is forked.
        """
        if self._sessions_terminal is not None:
            fcntl.ioctl(self._sessions_terminal, termios.TIOCNOTTY)
            # The kernel sends these to a process that loses its terminal, here only to this one;
            # nobody else must get them.
            for number in (signal.SIGHUP, signal.SIGCONT):
                signal.sigtimedwait({number}, 0)

    def take(self) -> None:
        """Take the place, in the process that is about to become the script.

        SIGTTOU has to be blocked.
        """
        if self.leads is Leads.SESSION:
            os.setsid()
            if self.terminal_fd is not None:
                fcntl.ioctl(self.terminal_fd, termios.TIOCSCTTY, 0)
        elif self.leads is Leads.GROUP:
            os.setpgid(0, 0)
            if self.terminal_fd is not None and self.has_foreground:
                os.tcsetpgrp(self.terminal_fd, os.getpid())

    def regain(self) -> None:
        """Take the terminal back from a script that could not be started."""
        if self._sessions_terminal is not None:
            fcntl.ioctl(self._sessions_terminal, termios.TIOCSCTTY, 0)

    def settle(self) -> None:
        """Close the terminal of a script that leads a session on it: it is the script's alone."""
        if self._sessions_terminal is not None:
            os.close(self._sessions_terminal)

    def hand_over(self, group: int) -> bool:
        """Give a group the foreground if this process's own group has it; return whether it did."""
        return self._pass_on(os.getpgrp(), group)

    def take_back(self, group: int) -> None:
        """Take the foreground for this process's own group if ``group`` has it."""
        self._pass_on(group, os.getpgrp())

    def _pass_on(self, giver: int, taker: int) -> bool:
        if self.leads is not Leads.GROUP or self.terminal_fd is None:
            return False
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self.terminal_fd) == giver:
                os.tcsetpgrp(self.terminal_fd, taker)
                return True
        return False


def find_placement() -> ScriptPlace:
    """Return the place of a script that is started in place of this process."""
    pid = os.getpid()
    others = list(_groups_and_sessions_of_others())
    if os.getsid(0) == pid and all(session != pid for _, session in others):
        return ScriptPlace(Leads.SESSION, _controlling_terminal())
    if os.getpgrp() != pid or any(group == pid for group, _ in others):
        return ScriptPlace(Leads.NOTHING)
    terminal_fd = _controlling_terminal()
    return ScriptPlace(
        Leads.GROUP, terminal_fd, terminal_fd is not None and os.tcgetpgrp(terminal_fd) == pid
    )


def leads_session() -> bool:
    """Return whether this process leads its session."""
    return os.getsid(0) == os.getpid()


def _groups_and_sessions_of_others() -> Iterator[tuple[int, int]]:
    """Yield group and session of all other processes that can be asked and do not end meanwhile."""
    for pid in processes.pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid():
                yield os.getpgid(pid), os.getsid(pid)


def _controlling_terminal() -> int | None:
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
