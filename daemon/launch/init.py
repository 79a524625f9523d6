"""Run as the first process of a container: the parent of all orphans there.

It has to wait for each of them.
"""

from __future__ import annotations

import contextlib
import os
import signal

from profd.daemon.forks import let_go_of_all_but
from profd.daemon.launch.placement import find_placement
from profd.daemon.launch.signals import taken


def step_below_init() -> None:
    """If this is a container's first process, go on in a child that has its placement.

    The first process then only waits.

    It passes signals on and ends with the child's exit code. If no child can be forked, the first
    process itself goes on.
    """
    if os.getpid() != 1:
        return
    numbers = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
    placement = find_placement()
    with taken(numbers):
        placement.let_go()
        try:
            pid = os.fork()
        except OSError:
            placement.regain()
            return
        if pid != 0:
            let_go_of_all_but(())
            os._exit(_wait(pid, numbers) & 0xFF)
        placement.take()
    placement.settle()


def _wait(child: int, numbers: frozenset[signal.Signals]) -> int:
    """Return the exit code of a child as a shell gives it: 128 + N for a signal.

    Meanwhile, reap all other children that end.
    """
    while True:
        info = signal.sigwaitinfo(numbers)
        if info.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif info.si_pid != child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, info.si_signo)


def _reap(awaited: int) -> int | None:
    """Reap all children that have ended.

    Returns the status of the awaited one, or None if it is not among them.
    """
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == awaited:
                found = status
    return found
