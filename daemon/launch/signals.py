"""The signals that a launcher takes in its script's stead, and which of them the script still has to be given.

Owns the launcher's signal mask while the script runs, and judges a signal by its origin.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from profd.daemon import program

_LEFT_ALONE = frozenset(
    {
        # Nobody can take these.
        signal.SIGKILL, signal.SIGSTOP,
        # Job control: a launcher that stops along with its script is what a shell expects.
        signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
        # Faults of the launcher's own code.
        signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
        # Python ignores them from its start.
        signal.SIGPIPE, signal.SIGXFSZ,
    }
)  # fmt: skip
TAKEN = frozenset(signal.valid_signals()) - _LEFT_ALONE  # the signals that a launcher takes
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""The signals by which a person asks a program to end."""
# What the kernel sends to every process of the terminal's foreground group.
_OF_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCONT, signal.SIGWINCH})
# What it sends to the leader of the session alone when the terminal hangs up.
_OF_SESSION = frozenset({signal.SIGHUP, signal.SIGCONT})

Action = Callable[[int, "FrameType | None"], object] | int | signal.Handlers | None


@dataclass(frozen=True)
class InheritedSignals:
    """The mask and the handling of SIGCHLD at the launcher's start, for the script to find the same."""

    mask: frozenset[int]
    on_child: Action

    def hand_on(self) -> None:
        """Give them to this process, which is about to become the script.

        What was ignored stays ignored over ``exec`` (``nohup``). Python ignores SIGPIPE and SIGXFSZ before its first
        line runs: they become what they were. If that is unknown, they get their default, as from ``subprocess``.
        """
        for number in {signal.SIGPIPE, signal.SIGXFSZ} - (program.ignored_signals() or frozenset()):
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            # Until the exec an interrupt has to end this process, not to raise in it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, self.on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


@contextmanager
def taken() -> Iterator[InheritedSignals]:
    """Hold the taken signals back from this process, to be read with ``signal.sigwaitinfo``.

    A process that has other threads by then, or that starts a child, has to see to their masks itself.
    """
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN))
    # Where SIGCHLD is ignored the kernel keeps no exit status.
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield InheritedSignals(mask, signal.SIG_DFL if on_child is None else on_child)
    finally:
        signal.signal(signal.SIGCHLD, on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def is_from_process(info: signal.struct_siginfo) -> bool:
    return info.si_code <= 0  # of kill, sigqueue, tgkill; what the kernel itself sends has a positive one


@dataclass(frozen=True)
class Standing:
    """How the launcher stands to its script and to the terminal: what decides which signals both of them get.

    ``in_one_group`` is False where the script has a terminal of its own; ``leads_session`` is the launcher's.
    """

    script_pid: int
    in_one_group: bool
    leads_session: bool

    def owes(self, info: signal.struct_siginfo) -> bool:
        """Say whether a signal that the launcher took has still to be given to the script."""
        if info.si_signo == signal.SIGCHLD:
            return False
        if is_from_process(info):
            return info.si_pid != self.script_pid
        if not self.in_one_group:
            return info.si_signo not in (signal.SIGWINCH, signal.SIGCONT)
        if info.si_signo in _OF_SESSION and self.leads_session:
            return True
        return info.si_signo not in _OF_TERMINAL
