"""What /proc says of a process at one moment: identity, state, words of its command, version of its Python.

Plain reads without history; nothing here watches anything. A process that is gone, or not ours to read, gives None.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

PROC = Path("/proc")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_INNERMOST_ID = re.compile(rb"^NSpid:[\d\s]*?(\d+)$", re.MULTILINE)
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
    """The address where its stack starts: another one means that the process has exec'ed.

    0 where we may not look, while a process is dying (its memory goes long before it is a zombie), and in the midst of
    an exec, where the kernel moves the stack once more before it says where the code starts.
    """
    exit_status: int
    """As of ``waitpid``; 0 unless the process is a zombie that we may look into."""


class Owner(NamedTuple):
    """As whom a process opens files."""

    uid: int
    gid: int
    groups: tuple[int, ...]


NOBODY = Owner(65534, 65534, ())


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
    try:
        return Stat(
            pid=pid,
            comm=head.partition("(")[2],
            state=fields[0],
            ppid=int(fields[1]),
            pgrp=int(fields[2]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            image=int(fields[25]) if int(fields[23]) else 0,
            exit_status=int(fields[49]) if len(fields) > 49 else 0,
        )
    except (IndexError, ValueError):
        return None


def is_running(pid: int, start_ticks: int) -> bool:
    """Say whether this very process still runs: not a zombie, and not another one with the same PID."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state not in "ZX"


def uptime_s() -> float:
    """Return the seconds since boot, which is what ``start_ticks`` counts from."""
    return float((PROC / "uptime").read_text().split()[0])


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


def thread_ids(pid: int) -> dict[int, int]:
    """Return the living threads: the id that each has for the process itself → its id here.

    The two differ where the process lives in a container that we look into from outside. Empty where it is gone.
    """
    try:
        os_tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return {}
    if _own_id(f"/proc/{pid}/status") in (pid, None):
        return {os_tid: os_tid for os_tid in os_tids}
    own_ids = ((_own_id(f"/proc/{pid}/task/{os_tid}/status"), os_tid) for os_tid in os_tids)
    return {own_id: os_tid for own_id, os_tid in own_ids if own_id is not None}


def _own_id(path: str) -> int | None:
    """Return the last word of the line ``NSpid`` of a status file: the id in the innermost PID namespace."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            found = _INNERMOST_ID.search(file.read())
    except OSError:
        return None
    return int(found[1]) if found else None


def io_bytes(pid: int) -> tuple[int, int] | None:
    """Return the bytes that system calls of a process read and wrote in all; None where the kernel will not tell.

    Those that reached a disk would be others: a network file system counts here alone.
    """
    try:
        with open(f"/proc/{pid}/io", "rb") as file:  # noqa: PTH123
            words = file.read().split()
    except OSError:
        return None
    counters = dict(zip(words[::2], words[1::2], strict=False))
    try:
        return int(counters[b"rchar:"]), int(counters[b"wchar:"])
    except (KeyError, ValueError):
        return None


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


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


def owner(pid: int) -> Owner | None:
    """Return as whom a process opens files; None where it is gone."""
    try:
        text = (PROC / str(pid) / "status").read_bytes()
        fields = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
        # Of each four ids the last is the one that counts for files.
        uid, gid = (int(fields[name].split()[3]) for name in (b"Uid", b"Gid"))
        return Owner(uid, gid, tuple(map(int, fields[b"Groups"].split())))
    except (OSError, KeyError, ValueError, IndexError):
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
