"""Take signals in the script's stead, and decide which of them the script still has to get.

This module owns the launcher's signal mask while the script runs, and judges a signal by its
origin.
"""

from __future__ import annotations

import enum
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from profd.daemon import processes, program
from profd.daemon.prctl import Setting, settle

_LEFT_ALONE = frozenset(
    {
        # Nobody can catch these.
        signal.SIGKILL, signal.SIGSTOP,
        # Job control: a launcher in its script's group is stopped along with it, as a shell
        # expects.
        signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
        # Faults of the launcher's own code.
        signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
    }
)  # fmt: skip
TAKEN = frozenset(signal.valid_signals()) - _LEFT_ALONE  # the signals that a launcher takes
STOPPING = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""Signals that the launcher also takes if the script has a group of its own.

These stop the script, and then the launcher follows it.
"""
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""The signals by which a person asks a program to end."""
# Signals that the kernel sends to every process of the terminal's foreground group.
_OF_TERMINAL = frozenset(
    {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCONT, signal.SIGWINCH}
)
# Signals that the kernel sends only to the session's leader when the terminal hangs up.
_OF_SESSION = frozenset({signal.SIGHUP, signal.SIGCONT})

Action = Callable[[int, "FrameType | None"], object] | int | signal.Handlers | None


@dataclass(frozen=True)
class InheritedSignals:
    """The mask and the handling of SIGCHLD at the launcher's start.

    The script is to find the same.
    """

    mask: frozenset[int]
    on_child: Action

    def hand_on(self) -> None:
        """Apply them to this process, which is about to become the script.

        Ignored signals stay ignored over ``exec`` (``nohup``). Python ignores SIGPIPE and SIGXFSZ
        before its first line runs: they are set back to what they were. If that is unknown, they
        get their default, as with ``subprocess``.
        """
        for number in {signal.SIGPIPE, signal.SIGXFSZ} - (program.ignored_signals() or frozenset()):
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            # Until the exec an interrupt has to end this process, not raise in it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, self.on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


@contextmanager
def taken(numbers: frozenset[signal.Signals]) -> Iterator[InheritedSignals]:
    """Hold some signals back from this process, to be read with ``signal.sigwaitinfo``.

    A process that already has other threads, or that starts a child, has to set their masks itself.
    """
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, numbers))
    # If SIGCHLD is ignored, the kernel keeps no exit status.
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield InheritedSignals(mask, signal.SIG_DFL if on_child is None else on_child)
    finally:
        signal.signal(signal.SIGCHLD, on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def die_of(number: int) -> None:
    """End this process by a signal, without a core dump.

    Returns if that is impossible, as in a container's first process.
    """
    settle(Setting.DUMPS_CORE, 0)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def await_sender(info: signal.struct_siginfo) -> None:
    """Wait until the sender of a signal sleeps, or has ended.

    By then it has signaled all that it is about to signal.
    """
    # A sender may take so long to signal the processes of a job one after the other.
    deadline_s = time.monotonic() + 0.03
    while time.monotonic() < deadline_s:
        if processes.state(info.si_pid) != "R":
            return
        time.sleep(0.0002)


class Aim(enum.Enum):
    """To whom a signal still has to be passed on."""

    NOBODY = "nobody"
    SCRIPT = "script"
    GROUP = "group"
    TERMINAL = "terminal"


class Reached(enum.Enum):
    """Whom a process signaled, as far as this process's witnesses know."""

    LAUNCHER = "launcher"
    ITS_GROUP = "its group"
    ALL = "all"


@dataclass(frozen=True)
class ScriptStanding:
    """The relation of the launcher to its script and to the terminal.

    This decides which signals both the launcher and the script get.

    ``in_one_group`` says whether they share a group, ``on_own_terminal`` whether the script has
    another terminal than profd, and ``leads_session`` whether the launcher leads its session.
    """

    script_pid: int
    in_one_group: bool
    on_own_terminal: bool = False
    leads_session: bool = False

    def aim(self, info: signal.struct_siginfo, reached: Callable[[], Reached]) -> Aim:
        """Return who still has to get a signal that the launcher took.

        It asks the witnesses only if the answer depends on them.
        """
        if info.si_signo == signal.SIGCHLD:
            return Aim.NOBODY
        if info.si_code > 0:  # of the kernel: kill, sigqueue and tgkill give none such
            return self._aim_of_kernel(info.si_signo)
        if info.si_pid in (
            self.script_pid,
            os.getpid(),
        ):  # a write of its own to a pipe without a reader
            return Aim.NOBODY
        whom = reached()
        if whom is Reached.LAUNCHER:
            return Aim.SCRIPT
        return Aim.NOBODY if self.in_one_group or whom is Reached.ALL else Aim.GROUP

    def _aim_of_kernel(self, number: int) -> Aim:
        if self.on_own_terminal:
            return Aim.NOBODY if number in (signal.SIGWINCH, signal.SIGCONT) else Aim.TERMINAL
        if not self.in_one_group:
            return Aim.GROUP
        if number in _OF_SESSION and self.leads_session:
            return Aim.SCRIPT
        return Aim.NOBODY if number in _OF_TERMINAL else Aim.SCRIPT
