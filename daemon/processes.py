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
    image: int
    """The address where its stack starts: another one means that the process has exec'ed; 0 where we may not look."""
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
        image=int(fields[25]),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def is_running(pid: int, start_ticks: int) -> bool:
    """Say whether this very process still runs: not a zombie, and not another one with the same PID."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state not in "ZX"


def children(pid: int, *, of_all_threads: bool = True) -> list[int]:
    """Return the PIDs of the living children of a process, those of its main thread alone where that is enough.

    The kernel lists children by the thread that forked them, and a torch process has hundreds of threads.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task") if of_all_threads else [str(pid)]
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def environment(pid: int, allowed: frozenset[str]) -> dict[str, str]:
    """Return the variables of ``allowed`` that the process was started with; no other one leaves this function."""
    try:
        words = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (word.decode(errors="replace").partition("=") for word in words)
    return {name: value for name, _, value in pairs if name in allowed}


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
        executable = str((PROC / str(pid) / "exe").readlink()).removesuffix(" (deleted)")
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
