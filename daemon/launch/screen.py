"""What is on the terminal of a launched script: the script itself, or the dashboard in its place.

Owns the pseudo-terminal, the relay and the dashboard's process, and sees to it that the terminal is left as it was
found. Knows nothing of the session, and of the script only who it is.

Knows how it is started and how it ended, nothing of what it shows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

from profd.daemon import processes
from profd.daemon.launch.channel import ScriptChannel
from profd.daemon.launch.relay import Keyboard, Relay
from profd.daemon.launch.terminal import PseudoTerminal, Terminal, has_shell
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

    def start(self, script: Identity) -> None:
        """Begin to show what a script writes that was just started."""
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

    def renew(self) -> None:
        """Take the terminal up again: its window has another size, or this process goes on after a stop."""
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

    def start(self, script: Identity) -> None:
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

    def renew(self) -> None:
        """Do nothing."""

    def signaled(self, number: int) -> None:
        """Do nothing."""

    def script_ended(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""


class SharedScreen:
    """The script has a pseudo-terminal, and the real one is the dashboard's until the user leaves that."""

    def __init__(self, terminal: Terminal, link: ScriptChannel) -> None:
        """Take the real terminal; raises OSError where the system has no pseudo-terminal or no process left.

        What the script writes goes to ``link``, too.
        """
        self._terminal = terminal
        self.pseudo_terminal = PseudoTerminal(terminal)
        self._dashboard: Dashboard | None = None
        self._relay = Relay(self.pseudo_terminal.master_fd, 1, link)
        self._keyboard: Keyboard | None = None

    @property
    def is_occupied(self) -> bool:
        """Whether the dashboard is open."""
        return self._dashboard is not None

    def start(self, script: Identity) -> None:
        """Show the script until there is a dashboard: one that ends at once has been seen."""
        self.pseudo_terminal.release()
        self._join()
        self._relay.follow(script)

    def tell(self, line: str) -> bool:
        """Say a line while the script is shown."""
        if self._keyboard is None:
            return False
        self._relay.say(_for_raw_terminal(line))
        return True

    def open_dashboard(self, command: Sequence[str], mask: Iterable[int]) -> None:
        """Start the dashboard in the terminal's foreground."""
        self._part()
        self._dashboard = Dashboard(command, self.pseudo_terminal.master_fd, mask)
        self._relay.guard(self._dashboard.identity)

    def show_script(self, why: str) -> None:
        """Say why, then show the script again."""
        self._join()
        self._relay.show(_for_raw_terminal(why))

    def child_changed(self) -> str:
        """Reap the dashboard, or stop along with it: the shell that a person wants then waits for this process."""
        self._relay.revive()
        state = self._dashboard.poll() if self._dashboard else State.RUNNING
        if state is State.STOPPED and self._dashboard:
            if has_shell():
                os.killpg(0, signal.SIGSTOP)
            else:
                self._dashboard.resume()
        if state not in (State.LEFT, State.KILLED):
            return ""
        self._forget_dashboard()
        self._terminal.restore()
        if state is State.LEFT:
            return "the dashboard is closed"
        self._terminal.reset()
        return "the dashboard was killed"

    def renew(self) -> None:
        """Set size and modes for the script that is shown; the dashboard does so itself, unless it is still stopped."""
        if self._keyboard is not None:
            self._terminal.make_raw()
            self.pseudo_terminal.resize(self._terminal)
        elif self._dashboard is not None:
            self._dashboard.resume()

    def signaled(self, number: int) -> None:
        """Let a hangup end the dashboard: of a terminal that is gone the kernel tells the session's leader alone."""
        if number == signal.SIGHUP and self._dashboard is not None:
            self._dashboard.hang_up()

    def script_ended(self) -> None:
        """Show all that the script wrote; the real terminal is given back unless the dashboard has it."""
        self._relay.finish()
        self._part()

    def leave(self) -> None:
        """End the dashboard where it is still open, and clean up after it."""
        if self._dashboard is not None:
            self._dashboard.end()
            self._forget_dashboard()
            self._terminal.reset()

    def _forget_dashboard(self) -> None:
        self._dashboard = None
        self._relay.guard(None)

    def _join(self) -> None:
        """Make the real terminal the script's."""
        self._keyboard = Keyboard(self._terminal.fd, self.pseudo_terminal.master_fd)
        self.renew()
        self._keyboard.start()

    def _part(self) -> None:
        """Give the real terminal back."""
        if self._keyboard is not None:
            self._keyboard.end()
            self._keyboard = None
            self._relay.hide()
            self._terminal.restore()


def _for_raw_terminal(line: str) -> bytes:
    return (line.replace("\n", "\r\n") + "\r\n").encode(errors="replace")
