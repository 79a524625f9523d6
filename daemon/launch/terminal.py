"""The real terminal and a script's pseudo-terminal: modes, sizes, foreground groups."""

from __future__ import annotations

import contextlib
import curses
import fcntl
import os
import struct
import termios
import tty

from profd.daemon import processes

RESET = (
    b"\x1b[?2026l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u"
    b"\x1b[?1049l\x1b[?25h\x1b[0m\r"
)
"""Leaves the modes that a killed dashboard cannot leave itself.

These are its screen, the mouse, the keyboard's modes, and colors.
"""
_SIZE = struct.Struct("HHHH")
_STANDARD = (0, 1, 2)
_WITHOUT_CURSOR = ("dumb", "unknown")


def is_interactive() -> bool:
    """Return whether the standard streams are a terminal with this process in its foreground.

    The streams are stdin, stdout and stderr.
    """
    try:
        return all(os.isatty(fd) for fd in _STANDARD) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def takes_dashboard() -> bool:
    """Return whether this process has a terminal to itself that shows more than lines."""
    return is_interactive() and can_move_cursor()


def can_move_cursor() -> bool:
    """Return whether the terminal's description allows writing anywhere on it.

    A terminal without a description counts as able, unless its name says otherwise.

    Emacs's `M-x shell`, CI jobs and some screen readers have terminals that are not.
    """
    name = os.environ.get("TERM", "")
    try:
        curses.setupterm(name, _STANDARD[2])
    except curses.error:  # newer than this machine's descriptions, or there are none
        return name not in _WITHOUT_CURSOR
    return curses.tigetstr("cup") is not None


def has_shell() -> bool:
    """Return whether a shell takes the terminal when this process's job stops.

    If none does, a stop is final.

    It checks what the kernel checks: whether the job has a parent in the same session.
    """
    pid, group = os.getpid(), os.getpgrp()
    while (stat := processes.read_stat(pid)) is not None and stat.pgrp == group:
        pid = stat.ppid
    try:
        return stat is not None and os.getsid(pid) == os.getsid(0)
    except OSError:
        return False


def window_size(columns: int, lines: int) -> bytes:
    """Return a ``struct winsize``; the pixels are unknown."""
    return _SIZE.pack(lines, columns, 0, 0)


class RealTerminal:
    """A terminal, by default stdin's, with the modes that it had when this object was made."""

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd
        self.modes = termios.tcgetattr(fd)

    @property
    def size(self) -> bytes:
        return fcntl.ioctl(self.fd, termios.TIOCGWINSZ, bytes(_SIZE.size))

    def make_raw(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            tty.setraw(self.fd, termios.TCSADRAIN)

    def restore(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self.fd, termios.TCSADRAIN, self.modes)

    def reset(self) -> None:
        """Restore the terminal that a killed dashboard left behind; do nothing if it is gone."""
        self.restore()
        with contextlib.suppress(OSError):
            os.write(self.fd, RESET)


class PseudoTerminal:
    """A terminal for the script alone, in the modes and the size of the real one.

    The process that reads its master has ``anchor_fd`` open; ``lifeline_fd`` is at its end once no
    process has.
    """

    def __init__(self, like: RealTerminal) -> None:
        self.master_fd, self.slave_fd = os.openpty()
        self.lifeline_fd, self.anchor_fd = os.pipe()
        # A script that does not read must not hold anybody up. All that share the descriptor share
        # the flag.
        os.set_blocking(self.master_fd, False)
        termios.tcsetattr(self.slave_fd, termios.TCSANOW, like.modes)
        self.resize(like.size)

    def lead(self) -> None:
        """Make this process the leader of the terminal's session."""
        os.setsid()
        fcntl.ioctl(self.slave_fd, termios.TIOCSCTTY, 0)

    def adopt(self) -> None:
        """Make the terminal that of this process.

        This process is about to become the script, and leads its session.
        """
        self.lead()
        self._take_streams()

    def adopt_as_job(self) -> None:
        """Make the terminal that of this process, a job below the leader of its session.

        SIGTTOU has to be blocked.
        """
        os.setpgid(0, 0)
        os.tcsetpgrp(self.slave_fd, os.getpid())
        self._take_streams()

    def _take_streams(self) -> None:
        for fd in _STANDARD:
            os.dup2(self.slave_fd, fd)

    def resize(self, size: bytes) -> None:
        """Give it a size, as a ``struct winsize``."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.master_fd, termios.TIOCSWINSZ, size)

    def send(self, number: int) -> None:
        """Send a signal to the process group that the terminal's keys reach, if there is one."""
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self.master_fd)
            if group > 0:
                os.killpg(group, number)

    def release(self) -> None:
        """Close the script's side, so that its end can be read.

        From now on only the script has that side.
        """
        os.close(self.slave_fd)
        os.close(self.lifeline_fd)
