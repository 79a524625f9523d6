"""Reads processes from /proc: identity, times, environment, state; also sets OOM scores.

Memory, swap, disks and file systems of the machine are read by psutil (``machine.machine``).
Processes are not, for these reasons:

- psutil dates the start of a process by the wall clock, which may be set. Here identity, state,
  times and memory come from one read of one file, so that they belong to one process.
- It reads all of a command line and of the variables. Another user may make them as long as they
  like, so each read here is bounded. ``BoundedReads`` bounds the time of those that may hang.
- It finds children by reading all processes of the host, a hundred times as slowly, and the CPU
  time of one thread by reading all threads.
- It takes a process as unreadable if its main thread has ended before others.
- It lacks schedstat, wchan, syscall, smaps_rollup, pressure, control groups, the exit status, ids
  in the namespace of a container, and the network of one. If a core is offline, it gives the cores
  behind it wrong numbers.

Files are opened for each read: that costs 5 µs more than a descriptor that is kept open, but
hundreds of processes use up no descriptors. A process that is gone, or that we may not read, gives
None.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from profd.daemon import elf

MOST_BYTES = 8 << 20
"""The most bytes that are read of a file.

The maps of a process reach this if it has all the maps that the kernel allows.
"""
_MANY_THREADS = 256  # of one process; looking at all processes of a usual host takes as long
_PAIR = re.compile(rb"^(\w+):?[ \t]+(\d+)", re.MULTILINE)
_CPU_LINE = re.compile(rb"^(cpu\d*) +([\d ]+)$", re.MULTILINE)

PROC = Path("/proc")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_M_ARENA_MAX = -8  # of malloc.h
_PYTHON_NAME = re.compile(r"python(\d(?:\.\d+)?)?[a-z]*$")
_LIBPYTHON = re.compile(r"/libpython(\d\.\d+)[a-z]*\.so")
_CODE = re.compile(r"(?m)^\S+ r-xp \S+ \S+ \S+ +(/.*)$")


def read(path: str, most_bytes: int = MOST_BYTES) -> bytes | None:
    """Return the content of a file, its first ``most_bytes`` if it has more.

    None if it cannot be read.
    """
    try:
        # Without a writer a pipe reads as empty; one may lie below the root of a process.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    parts, left = [], most_bytes
    try:
        # A read may return less than is left: the kernel gives lists a page at a time.
        while left and (part := os.read(descriptor, min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_text(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    return (read(path) or b"").decode(errors="replace")


def read_number(path: str) -> int | None:
    """Return the number in a file; None if it holds a word, such as ``max`` for no limit."""
    text = read_text(path).strip()
    return int(text) if text.isdigit() else None


def read_pairs(path: str) -> dict[bytes, int]:
    """Return the numbers of a file with a name and a number on each line.

    Empty if it cannot be read.
    """
    return {name: int(number) for name, number in _PAIR.findall(read(path) or b"")}


class Stat(msgspec.Struct, frozen=True):
    """Some fields of ``/proc/PID/stat``.

    Times are in clock ticks; only fields that say so include the times of children.
    """

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    minor_faults: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    ended_children_ticks: int
    threads: int
    start_ticks: int
    rss_bytes: int
    image: int
    """The address at which its stack starts: another one means that the process has exec'ed.

    It is 0 if we may not look, while a process is dying (its memory goes long before it is a
    zombie), and during an exec, in which the kernel moves the stack once more before it says where
    the code starts.
    """
    core: int
    """The core on which its main thread runs, or ran last."""
    exit_status: int
    """As of ``waitpid``; 0 unless the process is a zombie that we may look into."""

    @property
    def cpu_ticks(self) -> int:
        return self.user_ticks + self.system_ticks

    @property
    def cpu_s(self) -> float:
        return self.cpu_ticks / CLOCK_TICKS

    @property
    def is_running(self) -> bool:
        """Whether it has a living thread: its main thread may have ended before others."""
        return self.state not in "ZX" or self.threads > 1

    @property
    def age_s(self) -> float:
        """The seconds since its start, by the clock of its start.

        ``/proc/uptime`` may be a container's own.
        """
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - self.start_ticks / CLOCK_TICKS, 0.0)


class CpuTicks(NamedTuple):
    """What a core, or all of them, did since the machine started, in clock ticks."""

    idle: int
    io_wait: int
    stolen: int
    """Given to other machines by the hypervisor."""
    all: int

    @property
    def busy(self) -> int:
        return self.all - self.idle - self.io_wait


class Owner(NamedTuple):
    """The user and groups with which a process opens files."""

    uid: int
    gid: int
    groups: tuple[int, ...]


NOBODY = Owner(65534, 65534, ())


def pids() -> Iterator[int]:
    """Yield the PIDs of all processes that we see."""
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())


def read_stat(pid: int, os_tid: int | None = None) -> Stat | None:
    """Read ``/proc/PID/stat``, or that of one thread."""
    # The name is in parentheses and may contain anything, even parentheses and spaces.
    head, _, tail = read_text(f"{_folder(pid, os_tid)}/stat").rpartition(")")
    fields = tail.split()
    try:
        return Stat(
            pid=pid,
            comm=head.partition("(")[2],
            state=fields[0],
            ppid=int(fields[1]),
            pgrp=int(fields[2]),
            minor_faults=int(fields[7]),
            major_faults=int(fields[9]),
            user_ticks=int(fields[11]),
            system_ticks=int(fields[12]),
            ended_children_ticks=int(fields[13]) + int(fields[14]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
            image=int(fields[25]) if int(fields[23]) else 0,
            core=int(fields[36]),
            exit_status=int(fields[49]),
        )
    except (IndexError, ValueError):
        return None


def read_stats(pids: Iterable[int]) -> list[Stat]:
    """Read the stats of some processes, without those that are gone."""
    return [stat for pid in pids if (stat := read_stat(pid)) is not None]


def state(pid: int) -> str:
    """Return the state of a process by the kernel's letter; X if it is gone."""
    stat = read_stat(pid)
    return stat.state if stat else "X"


def read_running(pid: int, start_ticks: int) -> Stat | None:
    """Read the stat of this very process.

    None if it is a zombie, gone, or another process with the same PID.
    """
    stat = read_stat(pid)
    if stat is None or stat.start_ticks != start_ticks or not stat.is_running:
        return None
    return stat


def start_ticks(pid: int) -> int:
    """Return when a process began, in clock ticks since boot; 0 if it is gone."""
    stat = read_stat(pid)
    return stat.start_ticks if stat else 0


def is_running(pid: int, start_ticks: int) -> bool:
    """Say whether this very process still runs."""
    return read_running(pid, start_ticks) is not None


def status(pid: int | str, os_tid: int | None = None) -> dict[str, str]:
    """Return the fields of ``/proc/PID/status``, or that of one thread; empty if it is gone.

    ``pid`` is a number or ``self``.
    """
    lines = read_text(f"{_folder(pid, os_tid)}/status").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def _folder(pid: int | str, os_tid: int | None) -> str:
    """Return the folder of a process, or of one thread of it."""
    return f"{PROC}/{pid}" if os_tid is None else f"{PROC}/{pid}/task/{os_tid}"


def _names_in(pid: int, folder: str) -> list[str]:
    """Return what is in a folder of a process; nothing if we may not look."""
    try:
        return os.listdir(f"{PROC}/{pid}/{folder}")
    except OSError:
        return []


def link(pid: int, name: str) -> str:
    """Return the target of a link of a process: ``exe``, ``cwd``, ``fd/3``.

    Empty if we may not look.
    """
    for shown in _showing(pid):
        with contextlib.suppress(OSError):
            # Path costs double, and there are hundreds of processes.
            return os.readlink(os.fsencode(f"{PROC}/{shown}/{name}")).decode(errors="replace")  # noqa: PTH115
    return ""


def open_files(pid: int) -> list[str]:
    """Return the link targets of a process's descriptors: paths, ``socket:[INODE]``.

    Empty if we may not look.
    """
    return [link(pid, f"fd/{fd}") for fd in _names_in(pid, "fd")]


def maps(pid: int) -> str:
    """Return the memory map of a process, as the kernel lists it.

    Empty if we may not look, or if it is too long.
    """
    found = _read_shown(pid, "maps", MOST_BYTES + 1)
    return found.decode(errors="replace") if len(found) <= MOST_BYTES else ""


def shown_as(pid: int) -> int:
    """Return the id by which /proc shows the memory of a process.

    That is the id of another thread if the main one has ended.
    """
    stat = read_stat(pid)
    if stat is None or stat.state not in "ZX" or stat.threads == 1:
        return pid
    return min(thread_ids(pid).values(), default=pid)


def _showing(pid: int) -> Iterator[int]:
    """Yield the ids to try for files about a process's memory; the second one costs more."""
    yield pid
    if (other := shown_as(pid)) != pid:
        yield other


def _read_shown(pid: int, name: str, most_bytes: int) -> bytes:
    """Return the content of a file about a process's memory; empty if it shows none."""
    files = (f"{PROC}/{shown}/{name}" for shown in _showing(pid))
    return next(filter(None, (read(file, most_bytes) for file in files)), b"")


def children(pid: int, *, of_all_threads: bool = True) -> list[int]:
    """Return the PIDs of living children.

    With ``of_all_threads`` False, return only those of the main thread, which is cheaper.
    """
    threads = _names_in(pid, "task") if of_all_threads else [str(pid)]
    if len(threads) > _MANY_THREADS:
        return [stat.pid for stat in map(read_stat, pids()) if stat and stat.ppid == pid]
    lists = (read(f"{PROC}/{pid}/task/{thread}/children") or b"" for thread in threads)
    return [int(child) for text in lists for child in text.split()]


def descendants(pid: int, *, but: int | None = None) -> Iterator[int]:
    """Yield the PIDs of living descendants, the nearest first.

    Leave out ``but`` and its descendants.
    """
    known, level = (
        {pid, but},
        dict.fromkeys([pid]),
    )  # one that is adopted meanwhile may be met twice
    while level := dict.fromkeys(
        child for one in level for child in children(one) if child not in known
    ):
        known |= level.keys()
        yield from level


def thread_ids(pid: int) -> dict[int, int]:
    """Return the living threads: the id that each has for the process → its id here.

    In a container the two differ.
    """
    os_tids = [int(name) for name in _names_in(pid, "task")]
    main = read_stat(pid) if len(os_tids) > 1 else None
    if main is not None and main.state in "ZX":  # an ended main thread stays in the list
        os_tids.remove(pid)
    if own_id(pid) in (pid, None):
        return {os_tid: os_tid for os_tid in os_tids}
    own_ids = ((own_id(pid, os_tid), os_tid) for os_tid in os_tids)
    return {inner: os_tid for inner, os_tid in own_ids if inner is not None}


def own_id(pid: int, os_tid: int | None = None) -> int | None:
    """Return the id in the innermost PID namespace; None if the process or thread is gone."""
    ids = status(pid, os_tid).get("NSpid", "").split()
    return int(ids[-1]) if ids else None


def environment(pid: int | str, allowed: frozenset[str]) -> dict[str, str]:
    """Return the variables in ``allowed`` that the process was started with.

    No other variable leaves this function. ``pid`` is a number or ``self``.
    """
    # The most that the kernel gives a new program, by default.
    words = (read(f"{PROC}/{pid}/environ", 2 << 20) or b"").split(b"\0")
    pairs = (word.decode(errors="replace").partition("=") for word in words)
    return {name: value for name, _, value in pairs if name in allowed}


def command_line(pid: int) -> tuple[str, ...]:
    """Return the words of the command line, only the first ones if it is long.

    Empty for kernel threads, zombies, and processes that are gone.
    """
    # Nobody keeps more than 65,536 characters.
    words = _read_shown(pid, "cmdline", 1 << 17).decode(errors="replace")
    return tuple(words.rstrip("\0").split("\0")) if words else ()


def owner_uid(pid: int) -> int | None:
    """Return the user id that the process runs as."""
    try:
        return (PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def owner(pid: int) -> Owner | None:
    """Return the user and groups with which a process opens files; None if it is gone."""
    fields = status(pid)
    try:
        # The last of the four ids counts for files.
        uid, gid = (int(fields[name].split()[3]) for name in ("Uid", "Gid"))
        return Owner(uid, gid, tuple(map(int, fields["Groups"].split())))
    except (KeyError, ValueError, IndexError):
        return None


def user_name(uid: int) -> str:
    """Return the name of a user, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def cpu_ticks() -> dict[str, CpuTicks]:
    """Return the ticks of the machine, ``cpu``, and of each core, ``cpu0`` and so on."""
    found = {}
    for label, words in _CPU_LINE.findall(read(f"{PROC}/stat") or b""):
        ticks = [int(word) for word in words.split()[:8]]  # user time already includes guests
        if len(ticks) == 8:
            found[label.decode()] = CpuTicks(ticks[3], ticks[4], ticks[7], sum(ticks))
    return found


def python_version(pid: int) -> str | None:
    """Return ``major.minor`` of the CPython in a process, ``""`` if unknown; None if none is in it.

    The symbols of its program, or of a library that it has mapped, show a CPython. A file that
    cannot be read is judged by its name.
    """
    executable = link(pid, "exe").removesuffix(" (deleted)")
    if not executable:
        return None
    match = _PYTHON_NAME.match(Path(executable).name)
    if match and match[1] and "." in match[1]:
        return match[1]
    # Only the mapping with a file's code counts: a process maps other files, too, including data
    # sets of terabytes, and py-spy the interpreter that it reads.
    programs = dict.fromkeys(_CODE.findall(maps(pid)))
    library = next(filter(None, map(_LIBPYTHON.search, programs)), None)
    if library:
        return library[1]
    root = PROC / str(shown_as(pid))
    files = [f"{root}/exe", *(f"{root}/root{path}" for path in programs)]
    found = next((version for file in files if (version := elf.python_in(file)) is not None), None)
    return "" if found is None and match else found


def volunteer(points: int = 500) -> None:
    """Let the OOM killer choose this process, and those it starts, before others.

    Without the right to do so nothing changes.
    """
    score = PROC / "self/oom_score_adj"
    with contextlib.suppress(OSError, ValueError):
        score.write_text(str(min(1000, int(score.read_text()) + points)))


def share_heap() -> None:
    """Let all future threads share one heap.

    glibc gives each thread its own, and free memory in one serves no other.
    """
    import ctypes

    with contextlib.suppress(AttributeError):  # a C library without such heaps
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Return free memory that lies between used memory to the kernel.

    By itself, glibc returns only the end of a heap.
    """
    import ctypes

    with contextlib.suppress(AttributeError):  # a C library without such heaps
        ctypes.CDLL(None).malloc_trim(0)


def spare(pid: int, like: int) -> None:
    """Let the OOM killer choose a process no sooner than another one.

    Without the right to do so nothing changes.
    """
    with contextlib.suppress(OSError):
        (PROC / str(pid) / "oom_score_adj").write_text(
            (PROC / str(like) / "oom_score_adj").read_text()
        )
