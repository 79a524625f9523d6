"""The launcher: the parent of the script.

It passes signals on, waits for the script, and ends with the script's exit code.

Everything that can fail is elsewhere: session and dashboard are processes, started and awaited in
threads. Only the main thread acts on their news and on signals. It waits for signals, and a thread
that has news sends it one.
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
from profd.daemon.launch.init import step_below_init
from profd.daemon.launch.placement import Leads, ScriptPlace, find_placement, leads_session
from profd.daemon.launch.screen import Screen, SharedScreen
from profd.daemon.launch.script import Script, Start
from profd.daemon.launch.signals import (
    ENDING,
    STOPPING,
    TAKEN,
    Aim,
    InheritedSignals,
    Reached,
    ScriptStanding,
    await_sender,
    taken,
)
from profd.daemon.launch.streams import Gate, SharedStderr
from profd.daemon.launch.terminal import RealTerminal, has_shell
from profd.daemon.launch.witness import Witnesses

LOOK_S = 1.0  # seconds between checks that the script still has the stderr shared with it
CLOSING_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Plan:
    """The command to launch, and what others do for the launcher.

    ``start_session`` starts a session for a running script. Once it records, it returns the run
    file and a function that waits until the session is gone; that function returns False if the
    session has not closed the file within so many seconds. It raises ProfdError.

    ``farewell`` returns the last lines on the finished run; without it only failures are reported.
    ``narrate`` takes lines for the user. ``dashboard`` returns the command of a dashboard for a run
    file and for the descriptor that takes the script's keys; without it the script keeps profd's
    own stdin, stdout and stderr. ``variables`` are set in the command's environment.
    """

    command: tuple[str, ...]
    start_session: Callable[[Script, socket.socket], tuple[Path, Callable[[float], bool]]]
    farewell: Callable[[], str] | None
    narrate: Callable[[str], None]
    dashboard: Callable[[Path, int], Sequence[str]] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def launch(plan: Plan) -> int:
    """Run a command as a profiled child of this process, and return its exit code.

    The code is -N if signal N killed the command.

    This process must have only one thread. Raises CommandNotFound or CommandNotExecutable, with
    nothing left behind; later failures are narrated, and the script runs on. If nothing can be
    started beside the script, this process becomes the script.
    """
    step_below_init()
    placement = find_placement()
    is_apart = plan.dashboard is not None or placement.leads is not Leads.NOTHING
    numbers = TAKEN | STOPPING if is_apart else TAKEN
    with taken(numbers) as inherited:
        try:
            begun = _begin(plan, placement, inherited, numbers)
        except OSError as error:
            plan.narrate(
                "profd: nothing is recorded: the system has nothing left to start it with "
                f"({error.strerror})"
            )
            Start(plan.command, inherited, plan.variables).replace_profd()
        return begun.run()


def _begin(
    plan: Plan,
    placement: ScriptPlace,
    inherited: InheritedSignals,
    numbers: frozenset[signal.Signals],
) -> Launch:
    """Start the command; raises OSError if that leaves nothing running."""
    channel, session_end = make_channel()
    start = Start(plan.command, inherited, plan.variables, Gate())
    screen = Screen(placement)
    if plan.dashboard is not None:
        try:
            screen = SharedScreen(RealTerminal(), channel)
        except OSError as error:
            reason = f"the system has no pseudo-terminal or no process left ({error.strerror})"
            plan.narrate(f"profd: no dashboard: {reason}")
    script, witnesses = _start_script(screen, start)
    return Launch(plan, inherited, numbers, screen, script, witnesses, channel, session_end)


def _start_script(screen: Screen, start: Start) -> tuple[Script, Witnesses | None]:
    """Start the witnesses, then the command; raises OSError if not even that can be started.

    Without witnesses a signal may reach the script twice. That is better than no script.
    """
    screen.make_room()
    witnesses = None
    with contextlib.suppress(OSError):
        witnesses = Witnesses(is_apart=screen.placement.leads is not Leads.NOTHING)
    if witnesses is None:
        return screen.start_script(start), None
    try:
        script = screen.start_script(start)
    except (OSError, ProfdError) as error:
        witnesses.close()
        if isinstance(error, ProfdError):
            raise
        screen.make_room()
        return screen.start_script(start), None
    witnesses.follow(script.identity)
    return script, witnesses


@dataclass(eq=False)
class Launch:
    """One script, from its start to the end of all that was started for it."""

    plan: Plan
    inherited: InheritedSignals
    numbers: frozenset[signal.Signals]
    screen: Screen
    script: Script
    witnesses: Witnesses | None
    channel: ScriptChannel
    session_end: socket.socket

    def __post_init__(self) -> None:
        self._standing = ScriptStanding(
            self.script.pid,
            in_one_group=self.screen.placement.leads is Leads.NOTHING,
            on_own_terminal=self.screen.pseudo_terminal is not None,
            leads_session=leads_session(),
        )
        self._stderr = SharedStderr(self.script.pid)
        # The tasks for the main thread.
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Waits for the session that records, or did.
        self._wait_closed: Callable[[float], bool] | None = None
        self._news: list[str] = []
        self._has_script_ended = self._is_session_over = self._is_given_up = False

    def run(self) -> int:
        self.screen.start(self.script.identity)
        self._in_thread(self._start_session)
        while not self._is_over:
            info = signal.sigtimedwait(self.numbers, LOOK_S)
            if info is None:
                self._stderr.let_go_with_script()
            else:
                self._take_signal(info)
            with contextlib.suppress(queue.Empty):
                while True:
                    self._events.get_nowait()()
            if self.script.poll() and not self._has_script_ended:
                self._end_script()
        self.screen.leave()
        if self.witnesses is not None:
            self.witnesses.close()
        for line in self._news:
            self.plan.narrate(line)
        return self.script.exit_code

    @property
    def _is_over(self) -> bool:
        is_done = self._is_given_up or (self._is_session_over and not self.screen.is_occupied)
        return self._has_script_ended and is_done

    def _take_session(self, run_file: Path, wait_closed: Callable[[float], bool]) -> None:
        self._wait_closed = wait_closed
        self._open_dashboard(run_file)
        if self._has_script_ended:
            self._in_thread(self._close_session)

    def _miss_session(self, news: str) -> None:
        self._is_session_over = True
        # Report it at the end if it would get between the script's lines now.
        if news and not self.screen.say(news):
            self._news.append(news)

    def _take_signal(self, info: signal.struct_siginfo) -> None:
        number = info.si_signo
        if number == signal.SIGCHLD:
            self.script.poll()
            self._follow_stop(self.script.take_stop())
            self._show_script(self.screen.child_changed())
            return
        if self._has_script_ended:
            # Only the launcher can be meant. The session closes its file by itself.
            self._is_given_up = number in ENDING
            return
        if number in (signal.SIGWINCH, signal.SIGCONT):
            self.screen.renew()
        aim = self._standing.aim(info, partial(self._reached, info))
        if aim is Aim.SCRIPT:
            self.script.send(number)
        elif aim is Aim.GROUP:
            self.screen.hand_over(self.script.pid)
            self.script.send_group(number)
        elif aim is Aim.TERMINAL and self.screen.pseudo_terminal is not None:
            self.screen.pseudo_terminal.send(number)
            self.screen.signaled(number)

    def _reached(self, info: signal.struct_siginfo) -> Reached:
        if self.witnesses is None:
            return Reached.LAUNCHER
        if info.si_pid == self.witnesses.pid:
            return Reached.ALL  # it woke this process because the script goes on
        await_sender(info)
        return self.witnesses.reached(info)

    def _follow_stop(self, number: int) -> None:
        """Stop along with the script: the user's shell waits for this process to stop."""
        if not number or self._has_script_ended or signal.SIGCONT in signal.sigpending():
            return
        is_apart = self.screen.placement.leads is not Leads.NOTHING
        if number in (signal.SIGTTIN, signal.SIGTTOU) and self.screen.hand_over(self.script.pid):
            # A shell has given this process the terminal without a signal.
            self.script.send_group(signal.SIGCONT)
        elif is_apart and number != signal.SIGSTOP and not has_shell():
            # Without profd the kernel would not have stopped it.
            self.script.send_group(signal.SIGCONT)
        elif self.witnesses is not None and self.screen.suspend():
            self.witnesses.stop_launcher(number)

    def _end_script(self) -> None:
        self._has_script_ended = True
        self.screen.script_ended(self.script.identity)
        self.channel.exited(self.script.status or 0)
        self.channel.close()
        if self._wait_closed is not None:
            self._in_thread(self._close_session)

    def _open_dashboard(self, run_file: Path) -> None:
        if self.plan.dashboard is None or self._has_script_ended:
            return
        try:
            self.screen.open_dashboard(partial(self.plan.dashboard, run_file), self.inherited.mask)
        except OSError as error:
            self._show_script(f"the dashboard did not start ({error.strerror})")

    def _show_script(self, why: str) -> None:
        if why and not self._has_script_ended:
            goes_on = f"the command (pid {self.script.pid}) runs on"
            self.screen.show_script(f"profd: {why}; {goes_on}: `profd view` elsewhere comes back")

    def _in_thread(self, work: Callable[[], Callable[[], None]]) -> None:
        """Let a thread do some work, then call its result in the main thread.

        A signal that the main thread takes anyway wakes it.
        """

        def run() -> None:
            event: Callable[[], None] = partial(self._miss_session, "")
            try:
                event = work()
            finally:
                # Whatever fails in the thread shows its traceback, and the launcher still waits for
                # the script's end.
                self._tell(event)

        try:
            threading.Thread(target=run, name=work.__name__, daemon=True).start()
        except RuntimeError:
            news = "profd: nothing is recorded: the system has no thread left"
            self._tell(partial(self._miss_session, news))

    def _tell(self, event: Callable[[], None]) -> None:
        self._events.put(event)
        os.kill(os.getpid(), signal.SIGCHLD)

    def _start_session(self) -> Callable[[], None]:
        news = "profd: the command ended before its recording had begun"
        try:
            return partial(
                self._take_session, *self.plan.start_session(self.script, self.session_end)
            )
        except NoSuchProcess:
            return partial(self._miss_session, news if self.plan.farewell else "")
        except ProfdError as error:
            return partial(self._miss_session, f"profd: nothing is recorded: {error}")
        finally:
            self.session_end.close()

    def _close_session(self) -> Callable[[], None]:
        assert self._wait_closed is not None
        news = []
        try:
            if not self._wait_closed(CLOSING_TIMEOUT_S):
                news.append(
                    "profd: the recording broke off, or is still being closed: the run holds "
                    "what is written"
                )
            if self.plan.farewell is not None:
                news.append(self.plan.farewell())
        except ProfdError as error:
            news.append(f"profd: {error}")
        return partial(self._miss_session, "\n".join(filter(None, news)))
