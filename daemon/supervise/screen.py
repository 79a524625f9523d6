"""What is on the terminal of a launched script: the script itself, or the dashboard with the script behind it.

Owns the pseudo-terminal, the relay and the dashboard's process, and sees to it that the terminal is left as it was
found. Knows nothing of the session, and of the script only what it writes.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from profd.daemon.supervise.dashboard import Dashboard, State
from profd.daemon.supervise.relay import Relay
from profd.daemon.supervise.terminal import PseudoTerminal, Terminal


class Screen(Protocol):
    """Where a script's input and output are."""

    @property
    def pseudo_terminal(self) -> PseudoTerminal | None:
        """The script's own terminal; None where it has that of profd, or none."""
        ...

    @property
    def is_occupied(self) -> bool:
        """Whether the terminal is in use by something that ends by itself."""
        ...

    def start(self, keep: Callable[[bytes], None]) -> None:
        """Begin to show what the script writes, and to give it to ``keep``; only after the script was started."""
        ...

    def tell(self, line: str) -> bool:
        """Say a line to the person now; False where it would get between the script's own lines."""
        ...

    def open_dashboard(self, command: Sequence[str], mask: Iterable[int]) -> None:
        """Start the dashboard, with the signal mask ``mask``, and with the master of the pseudo-terminal open."""
        ...

    def show_script(self, why: str) -> None:
        """Show the script's own output from now on, after a line that says why."""
        ...

    def child_changed(self) -> str:
        """Look after the dashboard's process; returns what became of it as one clause, empty where nothing did."""
        ...

    def resized(self) -> None:
        """Take on the size of the terminal's window."""
        ...

    def signaled(self, number: int) -> None:
        """Take in that the terminal sent a signal to this process, and maybe to no other."""
        ...

    def script_ended(self) -> None:
        """Copy what the script has left unread."""
        ...

    def leave(self) -> None:
        """End what is on the screen and give the terminal back; may be called twice."""
        ...


class InheritedScreen:
    """The script has the stdin, stdout and stderr of profd: there is hardly anything to do, which is the point."""

    pseudo_terminal = None
    is_occupied = False

    def start(self, keep: Callable[[bytes], None]) -> None:
        """Let go of stdin and stdout: whoever is at the other end of a pipe is to see the script close it."""
        null_fd = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null_fd, fd, inheritable=False)
        if null_fd > 1:  # it is 0 or 1 itself where that was closed from the start
            os.close(null_fd)

    def tell(self, line: str) -> bool:
        """Refuse: a byte of stderr may not be other than without profd."""
        return False

    def open_dashboard(self, command: Sequence[str], mask: Iterable[int]) -> None:
        """Do nothing."""

    def show_script(self, why: str) -> None:
        """Do nothing."""

    def child_changed(self) -> str:
        """Return that nothing changed."""
        return ""

    def resized(self) -> None:
        """Do nothing."""

    def signaled(self, number: int) -> None:
        """Do nothing."""

    def script_ended(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class SharedScreen:
    """The script has a pseudo-terminal, and the real one is the dashboard's until the user leaves that."""

    def __init__(self, terminal: Terminal) -> None:
        """Take the real terminal; raises OSError where the system has no pseudo-terminal left."""
        self._terminal = terminal
        self.pseudo_terminal = PseudoTerminal(terminal)
        self._dashboard: Dashboard | None = None
        self._relay: Relay | None = None
        self._is_script_shown = False

    @property
    def is_occupied(self) -> bool:
        """Whether the dashboard is open."""
        return self._dashboard is not None

    def start(self, keep: Callable[[bytes], None]) -> None:
        """Show the script until there is a dashboard: one that ends at once has been seen."""
        self._relay = Relay(self.pseudo_terminal.master_fd, keep)
        self._relay.start()
        self._join()

    def tell(self, line: str) -> bool:
        """Say a line while the script is shown."""
        if self._is_script_shown:
            with contextlib.suppress(OSError):
                os.write(2, (line.replace("\n", "\r\n") + "\r\n").encode(errors="replace"))
        return self._is_script_shown

    def open_dashboard(self, command: Sequence[str], mask: Iterable[int]) -> None:
        """Start the dashboard in the terminal's foreground."""
        self._part()
        self._dashboard = Dashboard(command, self.pseudo_terminal.master_fd, mask)

    def show_script(self, why: str) -> None:
        """Say why, then show the script again."""
        self._join()
        self.tell(why)

    def child_changed(self) -> str:
        """Reap the dashboard, or stop along with it."""
        state = self._dashboard.poll() if self._dashboard else State.RUNNING
        if state is State.STOPPED and self._dashboard:
            os.kill(os.getpid(), signal.SIGSTOP)
            self._dashboard.resume()
        if state not in (State.LEFT, State.KILLED):
            return ""
        self._dashboard = None
        self._terminal.restore()
        if state is State.LEFT:
            return "the dashboard is closed"
        self._terminal.reset()
        return "the dashboard was killed"

    def resized(self) -> None:
        """Hand the window's size on; while the dashboard is open, that sets the size of its pane itself."""
        if self._is_script_shown:
            self.pseudo_terminal.resize(self._terminal)

    def signaled(self, number: int) -> None:
        """Let a hangup end the dashboard: of a terminal that is gone the kernel tells the session's leader alone."""
        if number == signal.SIGHUP and self._dashboard is not None:
            self._dashboard.hang_up()

    def script_ended(self) -> None:
        """Read the script's terminal to its end; the real one is given back unless the dashboard has it."""
        self.pseudo_terminal.release()
        if self._relay is not None:
            self._relay.finish()
        self._part()

    def leave(self) -> None:
        """End the dashboard where it is still open, and clean up after it."""
        if self._dashboard is not None:
            self._dashboard.end()
            self._dashboard = None
            self._terminal.reset()

    def _join(self) -> None:
        """Make the real terminal the script's."""
        self._terminal.make_raw()
        self._is_script_shown = True
        self.resized()
        if self._relay is not None:
            self._relay.show(self._terminal.fd, 1)

    def _part(self) -> None:
        """Give the real terminal back."""
        if self._is_script_shown and self._relay is not None:
            self._relay.hide()
            self._is_script_shown = False
            self._terminal.restore()
