"""The script under the profiler, a child of the launcher, and the bystander that gets the same signals.

Between the fork and the exec runs only what makes the script find what it would find without profd.

A signal for the launcher alone has to be passed on to the script. One that was sent to the whole group (``kill 0`` in
a shell script, ``timeout``) or to every process of a job (a batch scheduler) has reached the script already, and would
reach it twice. The two differ in one thing only: a bystander got the second one, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import struct
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from profd.daemon import processes, program
from profd.daemon.errors import CommandNotExecutable, CommandNotFound, ProfdError
from profd.daemon.launch.signals import TAKEN, InheritedSignals, is_from_process
from profd.daemon.launch.terminal import PseudoTerminal
from profd.daemon.rights import Rights

_PR_SET_PTRACER, _PR_SET_PDEATHSIG = 0x59616D61, 1


class Script:
    """A started script, until this process has waited for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        stat = processes.read_stat(pid)
        self.start_ticks = stat.start_ticks if stat else 0
        self.status: int | None = None  # as of waitpid; None while the script runs

    def poll(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    @property
    def exit_code(self) -> int:
        """The exit code of the ended script as a shell gives it: 128 + N for a signal."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send a signal to the script; not where it has ended, or has become another user's."""
        if not self.poll():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def start_script(
    command: Sequence[str], inherited: InheritedSignals, terminal: PseudoTerminal | None, variables: Mapping[str, str]
) -> Script:
    """Start a command as a child of this process, which has to have one thread; on ``terminal`` where one is given.

    ``variables`` are set in its environment beside those of this process. Raises CommandNotFound or
    CommandNotExecutable, with nothing left behind.
    """
    # At 1, only an ancestor, or a declared process, may read a process.
    libc = ctypes.CDLL(None) if Rights().ptrace_scope() == 1 else None
    failure_fd, report_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if terminal is not None:
                terminal.adopt()
            if libc is not None:
                # py-spy is no ancestor of the script, but a descendant of the launcher, which Yama takes as well. The
                # declaration outlives the exec; the script's own children do not inherit it.
                libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getppid()), 0, 0, 0)
            _become(command, inherited, variables)
        except OSError as error:
            os.write(report_fd, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(report_fd)
    # The end of the pipe is closed by the exec itself: until then this waits.
    with os.fdopen(failure_fd, "rb") as failure:
        code = failure.read()
    if code:
        os.waitpid(pid, 0)
        raise _failure(command[0], int(code))
    return Script(pid)


def become_script(command: Sequence[str]) -> NoReturn:
    """Become a command that nothing of profd is needed for; raises CommandNotFound or CommandNotExecutable."""
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    try:
        _become(command, InheritedSignals(mask, signal.getsignal(signal.SIGCHLD)), {})
    except OSError as error:
        raise _failure(command[0], error.errno or 0) from None


def _become(command: Sequence[str], inherited: InheritedSignals, variables: Mapping[str, str]) -> NoReturn:
    inherited.hand_on()
    program.hand_on_environment(variables)
    os.execvp(command[0], list(command))


def _failure(name: str, code: int) -> ProfdError:
    exists = os.sep in name and Path(name).exists()
    if code in (errno.ENOENT, errno.ENOTDIR) and not exists:
        return CommandNotFound(f"there is no command {name}", "check its name and PATH")
    if code == errno.ENOENT:
        return CommandNotFound(f"the interpreter that {name} names in its first line does not exist", "correct it")
    remedy = f"try `profd run -- {Path(sys.executable).name} {name}`" if name.endswith(".py") else "see its permissions"
    if code == errno.ENOEXEC:
        remedy = "name its interpreter before it, or in a first line `#!...`"
    return CommandNotExecutable(f"{name} cannot be executed ({os.strerror(code)})", remedy)


_SIGHTING = struct.Struct("=ii")


class SignalBystander:
    """A running bystander; a child of this process that does not outlive it."""

    def __init__(self) -> None:
        """Start it: the signals in ``TAKEN`` have to be blocked, and this process to have one thread."""
        libc = ctypes.CDLL(None)
        self._sightings_fd, report_fd = os.pipe()
        launcher_pid = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
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
        os.close(report_fd)
        self._poller = select.poll()
        self._poller.register(self._sightings_fd, select.POLLIN)

    def saw(self, info: signal.struct_siginfo) -> bool:
        """Say whether the bystander got the same signal from the same process; waits a moment for it."""
        while self._poller.poll(30):  # ms that a sender may take from one process of a job to the next
            sightings = os.read(self._sightings_fd, 64 * _SIGHTING.size)
            if (info.si_signo, info.si_pid) in _SIGHTING.iter_unpack(sightings):
                return True
            if not sightings:
                break
        return False

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._sightings_fd)


def let_go_of_all_but(kept: Container[int]) -> None:
    """Close what this forked process inherited: a pipe of the script's would otherwise not end with the script."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
