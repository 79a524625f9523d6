"""Take a snapshot of one process's Python stacks by `py-spy dump`, without stopping the process.

A snapshot that fails because the process moved meanwhile is repeated.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import msgspec

from profd.daemon import processes
from profd.daemon.boundedprograms import ProgramLate, answer_of
from profd.daemon.stacks.pyspy import ENVIRONMENT, find_py_spy, reason_of

_TIMEOUT_S = 10.0


class DumpedFrame(msgspec.Struct, frozen=True):
    """A function at a line; ``line`` is 0 if it is not known."""

    name: str
    filename: str
    line: int

    @property
    def place(self) -> str:
        """The last two parts of its file's path, and its line."""
        return f"{'/'.join(PurePath(self.filename).parts[-2:])}:{self.line}"


class DumpedThread(msgspec.Struct, frozen=True):
    """A thread and its stack, the innermost frame first. ``thread_id`` is Python's own.

    ``active`` is True if the thread is on a CPU, as far as py-spy knows. ``native`` are the native
    frames that the innermost one called, ``function (file)``, and ``note`` is what else is known;
    both are empty unless they were asked for.
    """

    os_thread_id: int | None
    thread_name: str | None
    active: bool
    owns_gil: bool
    frames: tuple[DumpedFrame, ...]
    thread_id: int = 0
    native: tuple[str, ...] = ()
    note: str = ""


class DumpFailed(Exception):
    """py-spy could not read the process; the message is py-spy's own reason, on one line."""


def take_dump(pid: int, *, tries: int = 5) -> tuple[DumpedThread, ...]:
    """Return the threads of a process with their stacks.

    Raises DumpFailed, and MissingTool if py-spy is missing.
    """
    command = [
        find_py_spy(),
        "dump",
        "--nonblocking",
        "--json",
        "--pid",
        str(processes.shown_as(pid)),
    ]
    reason, environment = "", {**os.environ, **ENVIRONMENT}
    for _ in range(tries):
        try:
            code, answer, said = answer_of(command, environment, _TIMEOUT_S, ("dump", pid))
        except ProgramLate as error:
            raise DumpFailed(f"py-spy {error}") from None
        except OSError as error:
            raise DumpFailed(f"py-spy cannot be started ({error.strerror})") from None
        if code != 0:
            reason = reason_of(said)
            continue
        try:
            return decode_dump(answer)
        except ValueError as error:
            reason = f"py-spy wrote what is no dump ({error})"
    raise DumpFailed(reason)


def decode_dump(said: bytes) -> tuple[DumpedThread, ...]:
    """Return the threads that py-spy wrote as JSON.

    Raises ValueError if the bytes are something else.
    """
    try:
        return tuple(msgspec.json.decode(said, type=list[DumpedThread]))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
