"""Who holds the other end of a pipe, as far as /proc tells: of the run's processes and of all others that are ours."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes

_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
# A machine has tens of thousands of descriptors: what is not found by then stays unknown.
_PATIENCE_S = 1.0
_MOST_NAMED = 4

NameOf = Callable[[int], str]
"""Says in words who a PID is."""


class Pipe(NamedTuple):
    """A pipe or FIFO, on this machine."""

    device: int
    inode: int


def pipe_of(pid: int, fd: int) -> Pipe | None:
    """Return the pipe behind a descriptor; None where it is none."""
    try:
        found = Path(f"/proc/{pid}/fd/{fd}").stat()
    except OSError:
        return None
    return Pipe(found.st_dev, found.st_ino) if stat.S_ISFIFO(found.st_mode) else None


def holders(pipe: Pipe, mode: int) -> list[int] | None:
    """Return the PIDs that hold an end of a pipe open for ``mode``, O_RDONLY or O_WRONLY.

    None where looking took too long. Processes of others are not seen.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    found = []
    for pid in processes.pids():
        if time.monotonic() > deadline_s:
            return None
        if any(_is_open_for(pid, fd, mode) for fd in _descriptors_of(pid, pipe)):
            found.append(pid)
    return found


def other_end(pipe: Pipe, pid: int, *, is_reader: bool, name_of: NameOf) -> str:
    """Return in words who holds the other end of a pipe that ``pid`` waits at."""
    end = "writing" if is_reader else "reading"
    found = holders(pipe, os.O_WRONLY if is_reader else os.O_RDONLY)
    if found is None:
        return f"who holds its {end} end was not found in time"
    others = [holder for holder in found if holder != pid]
    if not others:
        return f"it alone holds the {end} end" if found else f"no process that we see holds its {end} end"
    named = ", ".join(name_of(holder) for holder in others[:_MOST_NAMED])
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    return f"its {end} end is held by {named}{more}"


def name_of_stranger(pid: int) -> str:
    """Name a process that is not of the run, by what the kernel calls it."""
    found = processes.read_stat(pid)
    return f"pid {pid} ({found.comm})" if found else f"pid {pid}"


def _descriptors_of(pid: int, pipe: Pipe) -> Iterator[int]:
    """Yield the descriptors of a process that are ends of a pipe."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                if pipe_of(pid, int(entry.name)) == pipe:
                    yield int(entry.name)
    except OSError:
        return


def _is_open_for(pid: int, fd: int, mode: int) -> bool:
    try:
        match = _FLAGS.search(Path(f"/proc/{pid}/fdinfo/{fd}").read_bytes())
    except OSError:
        return False
    return match is not None and int(match[1], 8) & os.O_ACCMODE in (mode, os.O_RDWR)
