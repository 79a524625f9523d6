"""Read the exit status of a process that is not profd's child.

It reads the zombie in /proc first, then the kernel's own note behind a pidfd (Linux 6.15 and
later), which outlives the process. A status is encoded as by ``waitpid``.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct

from profd.daemon import processes
from profd.daemon.errors import NoSuchProcess, SessionFailed
from profd.daemon.store.records import Identity

# struct pidfd_info of linux/pidfd.h, first version: mask and cgroup id, eleven ids, exit status.
_PIDFD_INFO = struct.Struct("=QQ11Ii")
_PIDFD_INFO_EXIT = 1 << 3


class ProcessWatch:
    """A handle on a process that becomes readable when the process ends.

    Wait for it with ``select`` or a loop.
    """

    def __init__(self, identity: Identity) -> None:
        """Open the handle; raises ProcessLookupError if the process is gone."""
        self.identity = identity
        self._pidfd = os.pidfd_open(identity.pid)
        if not processes.is_running(*identity):
            os.close(self._pidfd)
            raise ProcessLookupError(identity.pid)

    def fileno(self) -> int:
        return self._pidfd

    def send(self, number: int) -> None:
        """Send a signal to this very process.

        Raises ProcessLookupError if it has ended, and PermissionError.
        """
        signal.pidfd_send_signal(self._pidfd, number)

    def status(self) -> int | None:
        """Return the exit status of a process that has ended, or None if it is not known (yet)."""
        return status_of(self.identity, self._pidfd)

    def close(self) -> None:
        os.close(self._pidfd)


def watch_target(identity: Identity) -> ProcessWatch:
    """Return a handle on the process that is to be recorded.

    Raises NoSuchProcess, and SessionFailed on old kernels.
    """
    try:
        return ProcessWatch(identity)
    except ProcessLookupError:
        raise NoSuchProcess(
            f"process {identity.pid} has ended already", "nothing was recorded"
        ) from None
    except OSError as error:
        what, remedy = f"process {identity.pid} cannot be watched", "profd needs Linux 5.3 or later"
        raise SessionFailed.of_system(what, error, remedy) from error


def status_of(identity: Identity, pidfd: int | None = None) -> int | None:
    """Return how a process ended: by the zombie that it left, else by a handle on it, if known."""
    stat = processes.read_stat(identity.pid)
    if stat is not None and stat.start_ticks == identity.start_ticks:
        return of_zombie(stat)
    if pidfd is None:
        return None
    question = _PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13)
    try:
        # PIDFD_GET_INFO, encoded like _IOWR of linux/ioctl.h.
        answer = fcntl.ioctl(
            pidfd, (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11, question
        )
    except OSError:
        return None
    fields = _PIDFD_INFO.unpack(answer)
    return int(fields[-1]) if fields[0] & _PIDFD_INFO_EXIT else None


def code_and_signal(status: int | None) -> tuple[int | None, int | None]:
    """Split a status as of ``waitpid`` into exit code and signal.

    Both are None if the status is None.
    """
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def of_zombie(stat: processes.Stat) -> int | None:
    """Return a zombie's exit status, or None if the process lives.

    The kernel shows 0 to other users, so they get None.
    """
    may_look = stat.exit_status != 0 or os.geteuid() in (0, processes.owner_uid(stat.pid))
    return stat.exit_status if stat.state in "ZX" and may_look else None
