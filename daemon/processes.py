"""What /proc says of a process at one moment: identity, state, words of its command, version of its Python.

Plain reads without history; nothing here watches anything. A process that is gone, or not ours to read, gives None.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

PROC = Path("/proc")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PYTHON_NAME = re.compile(r"python(\d(?:\.\d+)?)?[a-z]*$")
_LIBPYTHON = re.compile(r"/libpython(\d\.\d+)[a-z]*\.so")


class Stat(msgspec.Struct, frozen=True):
    """Some fields of ``/proc/PID/stat``; ``cpu_ticks`` is user and system time without children."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    exit_status: int
    """As of ``waitpid``; 0 unless the process is a zombie that we may look into."""


def read_stat(pid: int, os_tid: int | None = None) -> Stat | None:
    """Read ``/proc/PID/stat``, or that of one thread."""
    path = f"/proc/{pid}/stat" if os_tid is None else f"/proc/{pid}/task/{os_tid}/stat"
    try:
        with open(path, "rb") as file:  # noqa: PTH123  read four times a second for every process: Path costs double
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, parentheses and spaces too.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(
        pid=pid,
        comm=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def is_running(pid: int, start_ticks: int) -> bool:
    """Say whether this very process still runs: not a zombie, and not another one with the same PID."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state not in "ZX"


def children(pid: int) -> list[int]:
    """Return the PIDs of the living children of a process, by all of its threads."""
    found: list[int] = []
    try:
        for thread in os.scandir(f"/proc/{pid}/task"):
            with open(f"{thread.path}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def command_line(pid: int) -> tuple[str, ...]:
    """Return the words of the command line; empty for kernel threads, zombies and the departed."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in words.rstrip(b"\0").split(b"\0")) if words else ()


def owner_uid(pid: int) -> int | None:
    """Return the user id that the process runs as."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def python_version(pid: int) -> str | None:
    """Return ``major.minor`` of the CPython that the process runs, ``""`` where it is Python of unknown version.

    None where it is no Python, or not ours to look into. Taken from the name of the executable and of the libpython
    that it has mapped: no byte of the process's memory is read.
    """
    try:
        executable = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return None
    match = _PYTHON_NAME.match(Path(executable).name)
    if match and match[1] and "." in match[1]:
        return match[1]
    try:
        maps = (PROC / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        maps = ""
    library = _LIBPYTHON.search(maps)
    if library:
        return library[1]
    return "" if match else None
