"""Two small processes that learn what the launcher cannot.

They learn who else got a signal, and notice signals that cannot be caught.

A signal may have been sent to the launcher alone, to its group, or to all processes of a job. The
*canary* is in the launcher's group and does nothing: the group got what it got. The *guardian* is
in nobody's group, and has the script's name and command line: the script got what it got (from a
batch scheduler, from ``pkill -f train.py``).

The guardian also acts if the launcher cannot. If the launcher's group is killed or stopped as a
whole, the guardian does the same to the script, whose group is another one. If the launcher has
stopped along with its script, the guardian wakes it when the script goes on. Neither process is
found by profd's name: a signal that is meant for profd alone does not reach them or the script.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

import msgspec

from profd.daemon import processes
from profd.daemon.forks import HELPER, become_helper, let_go_of_all_but, rename
from profd.daemon.launch.channel import is_ready, offer, packet_pair
from profd.daemon.launch.signals import Reached
from profd.daemon.prctl import Setting, settle
from profd.daemon.store.records import Identity

Sightings = list[tuple[int, int]]
"""Signals, with the PIDs of their senders."""

_PACKET_BYTES = 1 << 12
_LOOK_MS = 50  # milliseconds between the guardian's checks whether a stopped script goes on
_ASK, _FOLLOW, _WATCH, _REST, _LEAVE = b"?", b"f", b"w", b"r", b"."


class Witnesses:
    """The guardian, as its launcher sees it, and the canary below it."""

    def __init__(self, *, is_apart: bool) -> None:
        """Start both, before the script, whose group may be signaled at once.

        This process has one thread, and has blocked the signals that it takes. ``is_apart`` says
        whether the script is to lead a group of its own. Raises OSError.
        """
        self._end, its_end = packet_pair()
        launcher_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _Guardian(its_end, launcher_pid, is_apart).run()
            finally:
                os._exit(0)
        its_end.close()

    def follow(self, script: Identity) -> None:
        """Let the guardian take the name of a script that has been exec'ed, and follow its fate."""
        offer(self._end, _FOLLOW + msgspec.msgpack.encode(script))

    def reached(self, info: signal.struct_siginfo) -> Reached:
        """Return who got a signal that a process has sent to this one, and maybe to others."""
        sighting = (info.si_signo, info.si_pid)
        by_guardian, by_canary = self._ask()
        if sighting in by_guardian:
            return Reached.ALL
        return Reached.ITS_GROUP if sighting in by_canary else Reached.LAUNCHER

    def stop_launcher(self, number: int) -> None:
        """Stop this process by a signal.

        Returns when it goes on, at the latest once the script does.
        """
        offer(self._end, _WATCH)
        if number != signal.SIGSTOP:
            signal.signal(number, signal.SIG_DFL)
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        offer(self._end, _REST)

    def close(self) -> None:
        offer(self._end, _LEAVE)
        self._end.close()
        with contextlib.suppress(OSError):
            # The guardian may have been stopped along with all processes of a job.
            os.kill(self.pid, signal.SIGCONT)
            os.waitpid(self.pid, 0)

    def _ask(self) -> tuple[Sightings, Sightings]:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            while is_ready(self._end.fileno()) and self._end.recv(_PACKET_BYTES):
                pass  # answers that came too late
            offer(self._end, _ASK)
            if _answers(self._end, self.pid):
                return msgspec.msgpack.decode(
                    self._end.recv(_PACKET_BYTES), type=tuple[Sightings, Sightings]
                )
        return [], []


class _Guardian:
    """The work of the guardian's process."""

    def __init__(self, launcher: socket.socket, launcher_pid: int, is_apart: bool) -> None:
        """Start the canary in the launcher's group, which this process then leaves."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        let_go_of_all_but({launcher.fileno()})
        self._launcher, self._launcher_pid = launcher, launcher_pid
        self._script: Identity | None = None
        self._is_apart = is_apart
        self._wake_fd, waker_fd = os.pipe()
        self._canary, canary_end = packet_pair()
        self._canary_pid = os.fork()
        if self._canary_pid == 0:
            let_go_of_all_but({canary_end.fileno()})
            _sing(canary_end)
        canary_end.close()
        os.setsid()
        # Earlier signals were for the launcher's group. The canary may not have been there yet.
        self._of_group = _pending()
        become_helper("signals")
        os.set_blocking(waker_fd, False)
        signal.set_wakeup_fd(waker_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        self._is_watching = False

    def run(self) -> None:
        """Answer and watch until the launcher has ended."""
        poller = select.poll()
        for fd in (self._launcher.fileno(), self._wake_fd):
            poller.register(fd, select.POLLIN)
        word = _REST
        while word not in (b"", _LEAVE):
            ready = dict(poller.poll(_LOOK_MS if self._is_watching else None))
            if self._wake_fd in ready:
                os.read(self._wake_fd, 64)
                self._mind_canary()
            if self._launcher.fileno() in ready:
                packet = self._launcher.recv(_PACKET_BYTES)
                word = packet[:1]
                self._obey(word, packet[1:])
            if self._is_watching:
                self._wake_launcher()
        if word == b"":
            self._miss_launcher()
        os.kill(self._canary_pid, signal.SIGKILL)

    def _obey(self, word: bytes, script: bytes) -> None:
        self._is_watching = word == _WATCH
        if word == _FOLLOW:
            self._script = msgspec.msgpack.decode(script, type=Identity)
            self._take_name(self._script.pid)
        elif word == _ASK:
            self._answer()

    def _take_name(self, script_pid: int) -> None:
        stat = processes.read_stat(script_pid)
        words = [os.fsencode(word) for word in processes.command_line(script_pid)]
        rename(os.fsencode(stat.comm) if stat else HELPER.encode(), [*words, HELPER.encode()])

    def _wake_launcher(self) -> None:
        """Wake a launcher that has stopped along with its script once the script goes on."""
        script_goes_on = self._script is None or processes.state(self._script.pid) != "T"
        if script_goes_on and processes.state(self._launcher_pid) == "T":
            os.kill(self._launcher_pid, signal.SIGCONT)

    def _answer(self) -> None:
        seen, self._of_group = self._of_group, []
        with contextlib.suppress(OSError, msgspec.DecodeError):
            offer(self._canary, _ASK)
            if _answers(self._canary, self._canary_pid):
                seen += msgspec.msgpack.decode(self._canary.recv(_PACKET_BYTES), type=Sightings)
        offer(self._launcher, msgspec.msgpack.encode((_pending(), seen)))

    def _mind_canary(self) -> None:
        """Stop the script if the launcher's group was stopped as a whole.

        The launcher lets the script go on.
        """
        pid, status = os.waitpid(self._canary_pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status) and self._is_apart and _comes_to(self._launcher_pid, "T"):
            self._signal_group(signal.SIGSTOP)

    def _miss_launcher(self) -> None:
        """Kill the script if the launcher was killed with its whole group.

        Without profd the script would have been killed with that group.
        """
        if self._is_apart and _comes_to(self._canary_pid, "ZX"):
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> None:
        if self._script is not None and processes.is_running(*self._script):
            with contextlib.suppress(OSError):
                os.killpg(self._script.pid, number)


def _sing(guardian: socket.socket) -> None:
    """Report the signals that came, whenever asked, until the guardian is gone."""
    settle(Setting.SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)
    become_helper("signals")
    while guardian.recv(1):
        offer(guardian, msgspec.msgpack.encode(_pending()))
    os._exit(0)


def _pending() -> Sightings:
    """Take the signals that other processes have sent to this one; all are blocked."""
    found = []
    while (info := signal.sigtimedwait(_TAKABLE, 0)) is not None:
        found.append((info.si_signo, info.si_pid))
    return found


_TAKABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}


def _answers(end: socket.socket, pid: int) -> bool:
    """Wait for a process to answer; return False if it is stopped, gone, or does not get to run."""
    # A second's worth of looks at a process that neither answers nor is stopped.
    for _ in range(20):
        if is_ready(end.fileno(), patience_ms=_LOOK_MS):
            return True
        if processes.state(pid) in "TZX":
            break
    return False


def _comes_to(pid: int, states: str) -> bool:
    """Return whether a process comes to a state within a moment.

    A group is not signaled all at once.
    """
    for _ in range(_LOOK_MS):
        if processes.state(pid) in states:
            return True
        select.select([], [], [], 0.001)
    return False
