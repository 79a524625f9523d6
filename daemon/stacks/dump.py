"""One look at the Python stacks of one process, by `py-spy dump`: now, without stopping it.

A look that fails because the process moved meanwhile is repeated.
"""

from __future__ import annotations

import os
import subprocess

import msgspec

from profd.daemon import processes
from profd.daemon.stacks.pyspy import ENVIRONMENT, find_py_spy, reason_of

_TIMEOUT_S = 10.0
_hanging: dict[int, subprocess.Popen[bytes]] = {}
"""By PID the looks that were given up, until they have ended."""


class DumpedFrame(msgspec.Struct, frozen=True):
    """A function at a line; ``line`` is 0 where it is not known."""

    name: str
    filename: str
    line: int


class DumpedThread(msgspec.Struct, frozen=True):
    """A thread and its stack, the innermost frame first.

    ``active``: on the CPU, as far as py-spy knows.
    """

    thread_id: int
    os_thread_id: int | None
    thread_name: str | None
    active: bool
    owns_gil: bool
    frames: tuple[DumpedFrame, ...]


class DumpFailed(Exception):
    """py-spy could not read the process; the message is its own reason, one line."""


def take_dump(pid: int, *, tries: int = 5) -> tuple[DumpedThread, ...]:
    """Return the threads of a process with their stacks.

    Raises DumpFailed, and MissingTool without py-spy.
    """
    command = [
        find_py_spy(),
        "dump",
        "--nonblocking",
        "--json",
        "--pid",
        str(processes.shown_as(pid)),
    ]
    reason = ""
    for _ in range(tries):
        try:
            code, answer, said = _ask(pid, command)
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


def _ask(pid: int, command: list[str]) -> tuple[int, bytes, bytes]:
    """Return py-spy's exit code, stdout and stderr.

    Raises DumpFailed where it hangs, and is left to end by itself.
    """
    if (before := _hanging.get(pid)) is not None and before.poll() is None:
        raise DumpFailed("py-spy still waits for an answer of the kernel's to an earlier look")
    _hanging.pop(pid, None)
    environment, pipe = {**os.environ, **ENVIRONMENT}, subprocess.PIPE
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    try:
        answer, said = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _hanging[pid] = process
        raise DumpFailed(f"py-spy did not answer within {_TIMEOUT_S:.0f} s") from None
    return process.returncode, answer, said


def decode_dump(said: bytes) -> tuple[DumpedThread, ...]:
    """Return the threads that py-spy wrote as JSON.

    Raises ValueError where it is something else.
    """
    try:
        return tuple(msgspec.json.decode(said, type=list[DumpedThread]))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
