"""Show the launched script on the terminal, or the dashboard in its place.

This module owns the pseudo-terminal, the relay and the dashboard's process, and leaves the terminal
as it was found.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from profd.daemon import processes
from profd.daemon.forks import STDERR
from profd.daemon.launch.channel import CHUNK_BYTES, ScriptChannel
from profd.daemon.launch.keeper import keep_script
from profd.daemon.launch.keyboard import DashboardKeyboard, Keyboard
from profd.daemon.launch.placement import Leads, ScriptPlace, leads_session
from profd.daemon.launch.relay import Relay
from profd.daemon.launch.script import Script, Start, fork_script
from profd.daemon.launch.terminal import PseudoTerminal, RealTerminal, has_shell
from profd.daemon.store.records import Identity


class RunningDashboard:
    """A running dashboard."""

    def __init__(self, command: Sequence[str], keys_fd: int, mask: Iterable[int]) -> None:
        """Start it with ``keys_fd`` open under the same number, and the signal mask ``mask``.

        This process closes its ``keys_fd``.
        """
        os.set_inheritable(keys_fd, True)
        try:
            self.pid = os.posix_spawn(command[0], list(command), os.environ, setsigmask=mask)
        finally:
            os.close(keys_fd)
        self.identity = Identity(self.pid, processes.start_ticks(self.pid))

    def end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGCONT):
            os.kill(self.pid, number)
        os.waitpid(self.pid, 0)

    def resume(self) -> None:
        """Let a stopped dashboard go on; a running one would take SIGCONT for a second start."""
        if processes.state(self.pid) == "T":
            os.kill(self.pid, signal.SIGCONT)


class Screen:
    """The screen of a script that has the stdin, stdout and stderr of profd.

    There is hardly anything to do, which is the point.
    """

    # The script's own terminal; None if the script has that of profd, or none.
    pseudo_terminal: PseudoTerminal | None = None

    def __init__(self, placement: ScriptPlace) -> None:
        self.placement = placement

    @property
    def is_occupied(self) -> bool:
        """Whether something that ends by itself uses the terminal."""
        return False

    def make_room(self) -> None:
        """Make the terminal ready for a script that ``start_script`` is about to start."""
        self.placement.let_go()

    def start_script(self, start: Start) -> Script:
        """Start a command in its place.

        Raises what ``fork_script`` does; the terminal is then as before.
        """
        try:
            script = fork_script(replace(start, take_place=self.placement.take))
        except OSError:
            self.placement.regain()
            raise
        self.placement.settle()
        return script

    def start(self, script: Identity) -> None:
        """Begin to show what a script writes."""

    def hand_over(self, group: int) -> bool:
        """Give a group the foreground of the terminal if this process has it.

        Returns whether it did.
        """
        return self.placement.hand_over(group)

    def suspend(self) -> bool:
        """Leave the terminal to a shell.

        Returns False if what is on it stops by itself, and this process along with it.
        """
        return True

    def say(self, line: str) -> bool:
        """Write a line now.

        Returns False if it would get between the script's own lines: profd writes nothing to the
        script's stderr.
        """
        return False

    def open_dashboard(
        self, make_command: Callable[[int], Sequence[str]], mask: Iterable[int]
    ) -> None:
        """Start the dashboard, with the signal mask ``mask``.

        Its command names the descriptor for the keys.
        """

    def show_script(self, why: str) -> None:
        """Show the script's own output from now on, after a line that says why."""

    def child_changed(self) -> str:
        """Check on the dashboard's process.

        Returns in one clause how it ended, or an empty text if it has not ended.
        """
        return ""

    def renew(self) -> None:
        """Take the terminal up again after its size changed or this process was stopped."""

    def signaled(self, number: int) -> None:
        """Note that the terminal sent a signal to this process, and maybe to no other."""

    def script_ended(self, script: Identity) -> None:
        """Take back the terminal of a script that led a group.

        Copy the output that it has left unread.
        """
        self.placement.take_back(script.pid)

    def leave(self) -> None:
        """End what is on the screen and give the terminal back; may be called twice."""


class SharedScreen(Screen):
    """The script has a pseudo-terminal, and the dashboard has the real one.

    The dashboard has it until the user leaves the dashboard.
    """

    pseudo_terminal: PseudoTerminal

    def __init__(self, terminal: RealTerminal, channel: ScriptChannel) -> None:
        """Take the terminal, and copy output to ``channel``.

        Raises OSError if no process can be forked.
        """
        super().__init__(ScriptPlace(Leads.GROUP))
        self._terminal = terminal
        self.pseudo_terminal = PseudoTerminal(terminal)
        self._dashboard: RunningDashboard | None = None
        self._relay = Relay(
            self.pseudo_terminal.master_fd, 1, channel, self.pseudo_terminal.anchor_fd
        )
        self._keyboard: Keyboard | None = None
        self._dashboards_keyboard: Keyboard | None = None

    @property
    def is_occupied(self) -> bool:
        return self._dashboard is not None

    def make_room(self) -> None:
        """Leave all keys to the script, which may ask for one in its first line."""
        self._terminal.make_raw()

    def start_script(self, start: Start) -> Script:
        """Start a command as the leader of the terminal's session, or as a shell's job.

        It is the leader if this process leads a session, else a job.
        """
        terminal = self.pseudo_terminal
        leads = leads_session()
        take_place = terminal.adopt if leads else terminal.adopt_as_job
        start = replace(start, take_place=take_place, kept=range(STDERR + 1))
        try:
            return fork_script(start) if leads else keep_script(start, terminal)
        except BaseException:
            self._terminal.restore()
            raise

    def start(self, script: Identity) -> None:
        self.pseudo_terminal.release()
        self._attach_keyboard()
        self._relay.order(script=script, is_shown=True)

    def say(self, line: str) -> bool:
        if self._keyboard is None:
            return False
        self._relay.order(notice=_for_raw_terminal(line))
        return True

    def suspend(self) -> bool:
        if self._dashboard is not None:
            os.kill(self._dashboard.pid, signal.SIGTSTP)
            return False
        self._terminal.restore()
        return True

    def open_dashboard(
        self, make_command: Callable[[int], Sequence[str]], mask: Iterable[int]
    ) -> None:
        if self._keyboard is not None and self._keyboard.has_interrupted:
            # The user wants the script to end, and not to look at it.
            self.say("profd: Ctrl-C was pressed, so no dashboard opens")
            return
        self._release_terminal()
        keyboard = DashboardKeyboard(self.pseudo_terminal)
        self._dashboard = RunningDashboard(
            make_command(keyboard.dashboards_fd), keyboard.dashboards_fd, mask
        )
        self._relay.order(dashboard=self._dashboard.identity)
        keyboard.start()
        self._dashboards_keyboard = keyboard

    def show_script(self, why: str) -> None:
        self._attach_keyboard()
        self._relay.order(is_shown=True, notice=_for_raw_terminal(why))

    def child_changed(self) -> str:
        """Reap the dashboard, or stop along with it.

        The user's shell waits for this process to stop.
        """
        self._relay.revive()
        if self._dashboard is None:
            return ""
        pid, status = os.waitpid(self._dashboard.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return ""
        if os.WIFSTOPPED(status):
            if has_shell():
                os.kill(os.getpid(), signal.SIGSTOP)
            else:
                self._dashboard.resume()
            return ""
        self._forget_dashboard()
        self._terminal.restore()
        if not os.WIFSIGNALED(status):
            return "the dashboard is closed"
        self._terminal.reset()  # the terminal is as the dashboard left it
        return "the dashboard was killed"

    def renew(self) -> None:
        """Set size and modes for the script that is shown.

        The dashboard does so itself, unless it is still stopped.
        """
        if self._keyboard is not None:
            self._terminal.make_raw()
            with contextlib.suppress(OSError):  # it was closed: the hang-up comes, too
                self.pseudo_terminal.resize(self._terminal.size)
        elif self._dashboard is not None:
            self._dashboard.resume()

    def signaled(self, number: int) -> None:
        """Let a hangup end the dashboard.

        The kernel signals only the session's leader when a terminal is gone.
        """
        if number == signal.SIGHUP and self._dashboard is not None:
            os.kill(self._dashboard.pid, signal.SIGHUP)

    def script_ended(self, script: Identity) -> None:
        """Show all that the script wrote.

        Give back the real terminal unless the dashboard has it.
        """
        self._relay.order(has_ended=True)
        self._release_terminal()

    def leave(self) -> None:
        if self._dashboard is not None:
            self._dashboard.end()
            self._forget_dashboard()
            self._terminal.reset()

    def _forget_dashboard(self) -> None:
        self._dashboard = None
        if self._dashboards_keyboard is not None:
            self._dashboards_keyboard.end()
            self._dashboards_keyboard = None
        self._relay.order(dashboard=None)

    def _attach_keyboard(self) -> None:
        self._keyboard = Keyboard(self._terminal.fd, self.pseudo_terminal)
        self.renew()
        self._keyboard.start()

    def _release_terminal(self) -> None:
        if self._keyboard is not None:
            self._keyboard.end()
            self._keyboard = None
            self._relay.order(is_shown=False)
            self._terminal.restore()


def _for_raw_terminal(line: str) -> bytes:
    return (line.replace("\n", "\r\n") + "\r\n").encode(errors="replace")[:CHUNK_BYTES]
