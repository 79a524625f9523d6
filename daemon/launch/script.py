"""The script under the profiler, a child of the launcher or of the keeper of its terminal.

The code between fork and exec only makes sure that the script finds what it would find without
profd.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from profd.daemon import processes, program
from profd.daemon.errors import CommandNotExecutable, CommandNotFound, ProfdError
from profd.daemon.forks import STDERR
from profd.daemon.launch.signals import STOPPING, InheritedSignals
from profd.daemon.launch.streams import Gate
from profd.daemon.prctl import Setting, settle
from profd.daemon.rights import Rights
from profd.daemon.store.records import Identity


class Script:
    """A started script, a child of this process, until it is reaped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.identity = Identity(pid, processes.start_ticks(pid))
        self.status: int | None = None  # as of waitpid; None while the script runs
        self._stopped_by = 0

    def poll(self) -> bool:
        """Take the script's changes of status; return whether it has ended."""
        while self.status is None and (status := self._next_status()) is not None:
            if os.WIFSTOPPED(status):
                self._stopped_by = os.WSTOPSIG(status)
            else:
                self.status = status
        return self.status is not None

    def _next_status(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        return status if pid else None

    def take_stop(self) -> int:
        """Return the signal that has stopped it since the last call; 0 if none has."""
        number, self._stopped_by = self._stopped_by, 0
        return number

    @property
    def exit_code(self) -> int:
        """The exit code of the ended script; -N if signal N killed it."""
        return os.waitstatus_to_exitcode(self.status or 0)

    def send(self, number: int) -> None:
        """Send a signal to the script, unless it has ended or has become another user's."""
        if not self.poll():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def send_group(self, number: int) -> None:
        """Send a signal to the group that the script leads.

        Others may still be in the group when the script has ended.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@dataclass(frozen=True)
class Start:
    """How to start a command.

    ``variables`` are set in the command's environment. The command waits for ``gate``, which this
    process opens once the command's process exists; of what this process has from its caller it
    keeps the descriptors ``kept``. ``take_place`` is called in the process that becomes the script,
    and gives it its place among groups and terminals.
    """

    command: Sequence[str]
    inherited: InheritedSignals
    variables: Mapping[str, str] = field(default_factory=dict)
    gate: Gate | None = None
    kept: Container[int] = (STDERR,)
    take_place: Callable[[], None] = lambda: None
    launcher_pid: int = field(default_factory=os.getpid)
    # At ptrace_scope 1, only an ancestor or a declared process may read a process.
    must_declare: bool = field(default_factory=lambda: Rights().ptrace_scope() == 1)

    def become_script(self, report_fd: int) -> None:
        """Become the script, in a process forked for that.

        Never returns; on failure it reports the reason and exits.
        """
        said = b"0"
        try:
            # A process in the background may take the terminal.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            self.take_place()
            if self.must_declare:
                # py-spy is no ancestor of the script, but a descendant of the launcher, which Yama
                # accepts as well. The declaration outlives the exec; the script's own children do
                # not inherit it.
                settle(Setting.PTRACER, self.launcher_pid)
            if self.gate is not None:
                self.gate.wait()
            self.execute()
        except OSError as error:
            said = str(error.errno).encode()
        except ValueError as error:
            said = repr(error).encode()
        finally:
            os.write(report_fd, said)
            os._exit(127)

    def open_gate(self) -> None:
        """Leave to the command's process what is its alone."""
        if self.gate is not None:
            self.gate.open(self.kept)

    def replace_profd(self) -> NoReturn:
        """Become the command in place of profd; raises CommandNotFound or CommandNotExecutable."""
        try:
            self.execute()
        except OSError as error:
            raise _failure(self.command[0], error.errno or 0) from None

    def execute(self) -> NoReturn:
        """Become the command in this very process; raises OSError."""
        self.inherited.hand_on()
        program.hand_on_environment(self.variables)
        # a search would find an empty name in each folder of PATH: the folder itself
        if not self.command[0]:
            raise FileNotFoundError(errno.ENOENT, "an empty name")
        os.execvp(self.command[0], [*self.command])

    def fail(self, reason: bytes) -> ProfdError:
        """Return the error for what ``become_script`` has reported."""
        if reason.isdigit():
            return _failure(self.command[0], int(reason))
        return CommandNotExecutable(
            f"{self.command[0]} cannot be executed", reason.decode(errors="replace")
        )


def fork_script(start: Start) -> Script:
    """Start a command as a child of this process, which must have only one thread.

    Raises CommandNotFound or CommandNotExecutable, with nothing left behind, and OSError if no
    process can be forked.
    """
    failure_fd, report_fd = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(failure_fd)
        raise
    else:
        if pid == 0:
            start.become_script(report_fd)
    finally:
        os.close(report_fd)
    start.open_gate()
    reason = read_failure(failure_fd)
    if reason:
        os.waitpid(pid, 0)
        raise start.fail(reason)
    return Script(pid)


def become_script(command: Sequence[str]) -> NoReturn:
    """Become a command for which nothing of profd is needed.

    Raises CommandNotFound or CommandNotExecutable.
    """
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    inherited = InheritedSignals(mask, signal.getsignal(signal.SIGCHLD))
    Start(command, inherited).replace_profd()


PYTHON = "python"


def command_of(file: str) -> list[str]:
    """Return the words of a command that runs a file of the current folder, or elsewhere."""
    if file.endswith(".py"):
        return [PYTHON, file]
    return [file if os.sep in file else f"./{file}"]


def read_failure(failure_fd: int) -> bytes:
    """Wait until a command was executed; return why it could not be, or an empty text."""
    # The exec itself closes the pipe's end: until then this waits.
    with os.fdopen(failure_fd, "rb") as failure:
        return failure.read()


def _failure(name: str, code: int) -> ProfdError:
    if not name:
        return CommandNotFound("the command's name is empty", "name the command after `--`")
    is_here = os.path.isfile(name)  # noqa: PTH113  Path raises for long names
    words = command_of(name) if is_here else []
    if code in (errno.ENOENT, errno.ENOTDIR) and not (is_here and os.sep in name):
        remedy = f"`profd run -- {shlex.join(words)}`" if words else "check its name and PATH"
        return CommandNotFound(f"there is no command {name}", remedy)
    if code == errno.ENOENT:
        return CommandNotFound(
            f"the interpreter that {name} names in its first line does not exist", "correct it"
        )
    remedy = "see its permissions"
    if words[:1] == [PYTHON]:
        remedy = f"`profd run -- {shlex.join(words)}`"
    elif code == errno.ENOEXEC:
        remedy = "name its interpreter before it, or in a first line `#!...`"
    return CommandNotExecutable(f"{name} cannot be executed ({os.strerror(code)})", remedy)
