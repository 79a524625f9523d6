"""The errors of profd, and the exit code of each.

Each says what failed and why, then what to do about it. They are caught in two places only: the
entry of the command line and the error screen of the dashboard.
"""

from __future__ import annotations

import errno
from enum import IntEnum

AGAINST_LIMITS = {
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "end something: the machine can open no more files",
    errno.ENOMEM: "end something: the machine has no more memory",
}
"""What helps if a limit of the machine was met, whatever profd was about to do."""


class ExitCode(IntEnum):
    """Exit codes of profd's own failures; documented in ``docs/commands.md``.

    ``profd run`` passes the script's own code on, or dies of its signal. So these codes are ones
    that scripts seldom use: a failure of profd before the script starts differs from one of the
    script.
    """

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_PROCESS = 64
    ZOMBIE = 65
    NOT_PYTHON = 66
    UNSUPPORTED_PYTHON = 67
    OTHER_USER = 68
    PTRACE_SCOPE = 69
    MISSING_CAPABILITY = 70
    UNREADABLE_RUN = 71
    NO_RUN = 72
    UNWRITABLE_OUTPUT = 73
    SESSION = 74
    MISSING_TOOL = 75
    BEYOND_LIMIT = 76
    NO_SAMPLES = 77
    COMMAND_NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127
    INTERRUPTED = 130  # 128 + SIGINT, as a shell reports a program that Ctrl-C ended


class ProfdError(Exception):
    """An error with its cause and its remedy.

    ``what`` says what failed and why, as one clause without a period. ``remedy`` says what to do
    about it, as one clause, empty if nothing can be done.
    """

    exit_code: ExitCode = ExitCode.FAILURE

    def __init_subclass__(cls, exit_code: ExitCode | None = None) -> None:
        if exit_code is not None:
            cls.exit_code = exit_code

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy

    @classmethod
    def of_system(cls, what: str, error: OSError, remedy: str = "") -> ProfdError:
        """Return the error for what the system refused; ``remedy`` helps unless a limit was met."""
        remedy = AGAINST_LIMITS.get(error.errno or 0, remedy)
        return cls(f"{what} ({error.strerror or error})", remedy)


class UsageError(ProfdError, exit_code=ExitCode.USAGE):
    """The command line asks for something impossible."""


class NoSuchProcess(ProfdError, exit_code=ExitCode.NO_PROCESS):
    """No process has this PID."""


class ZombieProcess(ProfdError, exit_code=ExitCode.ZOMBIE):
    """The process has ended and only waits for its parent."""


class NotPython(ProfdError, exit_code=ExitCode.NOT_PYTHON):
    """Neither the process nor a descendant runs CPython."""


class UnsupportedPython(ProfdError, exit_code=ExitCode.UNSUPPORTED_PYTHON):
    """py-spy cannot read this version of Python."""


class OtherUsersProcess(ProfdError, exit_code=ExitCode.OTHER_USER):
    """The process belongs to another user."""


class PtraceScopeForbids(ProfdError, exit_code=ExitCode.PTRACE_SCOPE):
    """Yama's ptrace_scope lets no one but an ancestor read the process."""


class MissingCapability(ProfdError, exit_code=ExitCode.MISSING_CAPABILITY):
    """A container or security module withholds the right to read other processes."""


class RunUnreadable(ProfdError, exit_code=ExitCode.UNREADABLE_RUN):
    """A file is no run file, or a damaged or newer one."""


class NoSuchRun(ProfdError, exit_code=ExitCode.NO_RUN):
    """No run, or more than one, matches this name."""


class OutputUnwritable(ProfdError, exit_code=ExitCode.UNWRITABLE_OUTPUT):
    """A requested file cannot be written."""


class SessionFailed(ProfdError, exit_code=ExitCode.SESSION):
    """A session could not be started, reached or commanded."""


class MissingTool(ProfdError, exit_code=ExitCode.MISSING_TOOL):
    """A program that profd needs is not installed."""


class CommandNotFound(ProfdError, exit_code=ExitCode.COMMAND_NOT_FOUND):
    """The command to launch does not exist."""


class CommandNotExecutable(ProfdError, exit_code=ExitCode.COMMAND_NOT_EXECUTABLE):
    """The command to launch exists but cannot be executed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether the system refused memory, or a thread, which needs memory for its stack."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)
