"""A process of the script's group whose only work is to see which signals went to more than the launcher.

A signal for the launcher alone has to be passed on to the script. One that was sent to the whole group (``kill 0`` in
a shell script, ``timeout``) or to every process of a job (a batch scheduler) has reached the script already, and would
reach it twice. Nothing in a signal tells the two apart, but that a bystander got it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
from collections.abc import Container
from pathlib import Path
from typing import NoReturn

from profd.daemon.supervise.signals import TAKEN, is_from_process

# How long a sender may take from one process of a job to the next.
_PATIENCE_MS = 30
_SIGHTING = struct.Struct("=ii")
_PR_SET_PDEATHSIG = 1


class Witness:
    """A running bystander; a child of this process that does not outlive it."""

    def __init__(self) -> None:
        """Start it: the signals in ``TAKEN`` have to be blocked, and this process to have one thread."""
        libc = ctypes.CDLL(None)
        self._sightings_fd, report_fd = os.pipe()
        launcher_pid = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _stand_by(launcher_pid, libc, report_fd)
        os.close(report_fd)
        self._poller = select.poll()
        self._poller.register(self._sightings_fd, select.POLLIN)

    def saw(self, info: signal.struct_siginfo) -> bool:
        """Say whether the bystander got the same signal from the same process; waits a moment for it."""
        while self._poller.poll(_PATIENCE_MS):
            sightings = os.read(self._sightings_fd, 64 * _SIGHTING.size)
            if (info.si_signo, info.si_pid) in _SIGHTING.iter_unpack(sightings):
                return True
            if not sightings:
                break
        return False

    def close(self) -> None:
        """End it."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._sightings_fd)


def _stand_by(launcher_pid: int, libc: ctypes.CDLL, report_fd: int) -> NoReturn:
    """Report signals until the launcher is gone."""
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        let_go_of_all_but({report_fd})
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text("profd-witness")
        while os.getppid() == launcher_pid:
            info = signal.sigwaitinfo(TAKEN)
            if is_from_process(info):
                os.write(report_fd, _SIGHTING.pack(info.si_signo, info.si_pid))
    finally:
        os._exit(0)


def let_go_of_all_but(kept: Container[int]) -> None:
    """Close what this forked process inherited: a pipe of the script's would otherwise not end with the script."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
