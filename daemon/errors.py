"""The errors of profd, and the exit code of each.

Each says what failed and why, then what to do about it. They are caught in two places only: the entry of the command
line and the error screen of the dashboard. Nothing here knows who raises them.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of profd's own failures; documented in ``docs/commands.md``.

    ``profd run`` passes the script's own code on (128 + N for a signal), so these lie where scripts seldom are, and a
    failure of profd before the script starts can be told from one of the script.
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
    COMMAND_NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127


class ProfdError(Exception):
    """Say what failed and why, and what to do about it.

    Args:
        what: what failed and why, as one clause without a full stop.
        remedy: what to do about it, as one clause; empty where nothing can be done.
    """

    exit_code: ExitCode = ExitCode.FAILURE

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class UsageError(ProfdError):
    """The command line asks for something that cannot be."""

    exit_code = ExitCode.USAGE


class NoSuchProcess(ProfdError):
    """No process has this PID."""

    exit_code = ExitCode.NO_PROCESS


class ZombieProcess(ProfdError):
    """The process has ended and only waits for its parent."""

    exit_code = ExitCode.ZOMBIE


class NotPython(ProfdError):
    """Neither the process nor a descendant runs CPython."""

    exit_code = ExitCode.NOT_PYTHON


class UnsupportedPython(ProfdError):
    """py-spy cannot read this version of Python."""

    exit_code = ExitCode.UNSUPPORTED_PYTHON


class OtherUsersProcess(ProfdError):
    """The process belongs to another user."""

    exit_code = ExitCode.OTHER_USER


class PtraceScopeForbids(ProfdError):
    """Yama's ptrace_scope lets no one but an ancestor read the process."""

    exit_code = ExitCode.PTRACE_SCOPE


class MissingCapability(ProfdError):
    """A container or security module withholds the right to read other processes."""

    exit_code = ExitCode.MISSING_CAPABILITY


class RunUnreadable(ProfdError):
    """A file is no run file, or a damaged or newer one."""

    exit_code = ExitCode.UNREADABLE_RUN


class NoSuchRun(ProfdError):
    """No run, or more than one, answers to this name."""

    exit_code = ExitCode.NO_RUN


class OutputUnwritable(ProfdError):
    """A file that was asked for cannot be written."""

    exit_code = ExitCode.UNWRITABLE_OUTPUT


class SessionFailed(ProfdError):
    """A session could not be started, reached or commanded."""

    exit_code = ExitCode.SESSION


class MissingTool(ProfdError):
    """A program that profd needs is not installed."""

    exit_code = ExitCode.MISSING_TOOL


class CommandNotFound(ProfdError):
    """The command to launch does not exist."""

    exit_code = ExitCode.COMMAND_NOT_FOUND


class CommandNotExecutable(ProfdError):
    """The command to launch exists but cannot be executed."""

    exit_code = ExitCode.COMMAND_NOT_EXECUTABLE
