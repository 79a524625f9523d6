"""The launcher: the parent of the script, which passes signals on, waits for it, and ends with its exit code.

Everything that can fail is somewhere else: session and dashboard are processes, started and waited for in threads. One
queue brings their news and the signals to the main thread, which alone acts on them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from profd.daemon.errors import NoSuchProcess, ProfdError
from profd.daemon.launch.channel import ScriptChannel, make_channel
from profd.daemon.launch.screen import Screen, SharedScreen
from profd.daemon.launch.script import Script, SignalBystander, start_script
from profd.daemon.launch.signals import ENDING, TAKEN, InheritedSignals, Standing, is_from_process, taken
from profd.daemon.launch.terminal import Terminal
from profd.daemon.store.records import Identity

CLOSING_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Plan:
    """The command to be launched, and what others do for the launcher.

    ``start_session`` returns the run file of a script that runs, once it is recorded, and what waits until the session
    is gone: False where it has not closed the file within that many seconds. Raises ProfdError. ``farewell`` returns
    the last lines on the finished run; without it only failures are reported. ``narrate`` takes lines for the
    user. ``dashboard`` returns the command of a dashboard on a run file and on the descriptor of the script's terminal;
    without it the script keeps profd's own stdin, stdout and stderr. ``variables`` are set in the command's
    environment.
    """

    command: tuple[str, ...]
    start_session: Callable[[Script, socket.socket], tuple[Path, Callable[[float], bool]]]
    farewell: Callable[[], str] | None
    narrate: Callable[[str], None]
    dashboard: Callable[[Path, int], Sequence[str]] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def launch(plan: Plan) -> int:
    """Run a command as a child of this process, profiled, and return its exit code: 128 + N for a signal.

    This process may have one thread only. Raises CommandNotFound or CommandNotExecutable, with nothing left behind;
    what fails later is narrated, and the script runs on.
    """
    with taken() as inherited:
        channel, session_end = make_channel()
        screen = Screen()
        try:
            screen = SharedScreen(Terminal(), channel) if plan.dashboard is not None else screen
        except OSError as error:
            reason = f"the system has no pseudo-terminal or no process left ({error.strerror})"
            plan.narrate(f"profd: no dashboard: {reason}")
        script = start_script(plan.command, inherited, screen.pseudo_terminal, plan.variables)
        bystander = None
        if screen.pseudo_terminal is None:
            # Where no process is left, a signal may reach the script twice; that is better than to fail.
            with contextlib.suppress(OSError):
                bystander = SignalBystander()
        return Launch(plan, inherited, screen, script, bystander, channel, session_end).run()


@dataclass(eq=False)
class Launch:
    """One script from its start to the end of all that was started for it."""

    plan: Plan
    inherited: InheritedSignals
    screen: Screen
    script: Script
    bystander: SignalBystander | None
    channel: ScriptChannel
    session_end: socket.socket

    def __post_init__(self) -> None:
        self._standing = Standing(self.script.pid, self.screen.pseudo_terminal is None, os.getsid(0) == os.getpid())
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # what the main thread is to do
        self._wait_closed: Callable[[float], bool] | None = None  # of the session that records, or did
        self._news: list[str] = []
        self._has_script_ended = False
        self._is_session_over = False
        self._is_given_up = False

    def run(self) -> int:
        self.screen.start(Identity(self.script.pid, self.script.start_ticks))
        self._in_thread(self._listen)
        self._in_thread(self._start_session)
        while True:
            is_done = self._is_given_up or (self._is_session_over and not self.screen.is_occupied)
            if self._has_script_ended and is_done:
                break
            self._events.get()()
            if self.script.status is not None and not self._has_script_ended:
                self._end_script(self.script.status)
        self.screen.leave()
        if self.bystander is not None:
            self.bystander.close()
        for line in self._news:
            self.plan.narrate(line)
        return self.script.exit_code

    def _take_session(self, run_file: Path, wait_closed: Callable[[float], bool]) -> None:
        self._wait_closed = wait_closed
        self._open_dashboard(run_file)
        if self._has_script_ended:
            self._in_thread(self._close_session)

    def _miss_session(self, news: str) -> None:
        self._is_session_over = True
        # At the end where it would get between the script's lines now.
        if news and not self.screen.say(news):
            self._news.append(news)

    def _take_signal(self, info: signal.struct_siginfo) -> None:
        if info.si_signo == signal.SIGCHLD:
            self.script.poll()
            self._show_script(self.screen.child_changed())
            return
        if self._has_script_ended:
            # It can be meant for the launcher only. The session closes its file by itself.
            self._is_given_up = info.si_signo in ENDING
            return
        if info.si_signo in (signal.SIGWINCH, signal.SIGCONT):
            self.screen.renew()
        if not self._standing.owes(info):
            return
        if self.bystander is not None and is_from_process(info) and self.bystander.saw(info):
            return  # it reached the script, too
        terminal = self.screen.pseudo_terminal
        if terminal is None or is_from_process(info):
            self.script.send(info.si_signo)
        else:
            terminal.send(info.si_signo)
            self.screen.signaled(info.si_signo)

    def _end_script(self, status: int) -> None:
        self._has_script_ended = True
        self.screen.script_ended()
        self.channel.exited(status)
        self.channel.close()
        if self._wait_closed is not None:
            self._in_thread(self._close_session)

    def _open_dashboard(self, run_file: Path) -> None:
        terminal = self.screen.pseudo_terminal
        if self.plan.dashboard is None or terminal is None or self._has_script_ended:
            return
        try:
            self.screen.open_dashboard(self.plan.dashboard(run_file, terminal.master_fd), self.inherited.mask)
        except OSError as error:
            self._show_script(f"the dashboard did not start ({error.strerror})")

    def _show_script(self, why: str) -> None:
        if why and not self._has_script_ended:
            self.screen.show_script(f"profd: {why}; the command (pid {self.script.pid}) runs on")

    def _in_thread(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=work.__name__, daemon=True).start()

    def _listen(self) -> None:
        while True:
            self._events.put(partial(self._take_signal, signal.sigwaitinfo(TAKEN)))

    def _start_session(self) -> None:
        event, news = partial(self._miss_session, ""), "profd: the command ended before its recording had begun"
        try:
            event = partial(self._take_session, *self.plan.start_session(self.script, self.session_end))
        except NoSuchProcess:
            event = partial(self._miss_session, news if self.plan.farewell else "")
        except ProfdError as error:
            event = partial(self._miss_session, f"profd: nothing is recorded: {error}")
        finally:
            # Whatever else goes wrong in here shows its traceback, and the script's end is still waited for.
            self.session_end.close()
            self._events.put(event)

    def _close_session(self) -> None:
        assert self._wait_closed is not None
        news = []
        try:
            if not self._wait_closed(CLOSING_TIMEOUT_S):
                news.append("profd: the recording broke off, or is still being closed: the run holds what is written")
            if self.plan.farewell is not None:
                news.append(self.plan.farewell())
        except ProfdError as error:
            news.append(f"profd: {error}")
        finally:
            self._events.put(partial(self._miss_session, "\n".join(filter(None, news))))
