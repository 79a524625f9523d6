"""What a thread waits for: its state, its system call, and the other end of the pipe or socket.

All of it is read from /proc; a word of the thread's memory only where a system call was given its descriptors there.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes

# name: number on x86-64 (None: has none), on aarch64
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "open": (2, None),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "getdents64": (217, 61),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "accept": (43, 202),
    "accept4": (288, 242),
    "connect": (42, 203),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "futex": (202, 98),
    "futex_waitv": (449, 449),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "flock": (73, 32),
    "fcntl": (72, 25),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "msync": (26, 227),
    "sync": (162, 81),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "pause": (34, None),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "ioctl": (16, 29),
}
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
_NAMES = {} if _COLUMN is None else {numbers[_COLUMN]: name for name, numbers in _NUMBERS.items()}


def name_of_call(number: int) -> str:
    """Return the name of a system call, its number in words where it is not one that waits."""
    return _NAMES.get(number, f"system call {number}")


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


_READS = ("read", "pread64", "readv", "recvfrom", "recvmsg", "accept", "accept4", "getdents64")
_WRITES = ("write", "pwrite64", "writev", "sendto", "sendmsg", "connect")
_FLUSHES = ("fsync", "fdatasync", "msync", "sync")
_OPENS = ("open", "openat", "newfstatat")
_LOCKS = ("futex", "futex_waitv", "semop", "semtimedop", "flock", "fcntl")
_SLEEPS = ("nanosleep", "clock_nanosleep")
_POLL_FD = struct.Struct("=ihh")
_MOST_POLLED = 16
_PATH_BYTES = 256
_TERMINALS = ("/dev/pts/", "/dev/tty")


class Wait(NamedTuple):
    """What a thread waits for.

    ``kind`` is one of stopped, running, lock, read, write, terminal, flush, child, sleep, events, gpu, unknown.
    """

    kind: str
    text: str


class Call(NamedTuple):
    """A system call that a thread is in, with its arguments as words."""

    name: str
    arguments: tuple[int, ...]


def read_wait(pid: int, os_tid: int, name_of: NameOf) -> Wait:
    """Return what a thread waits for; ``name_of`` says in words who a PID is."""
    stat = processes.read_stat(pid, os_tid)
    if stat is None:
        return Wait("unknown", "it is gone")
    if stat.state in "Tt":
        return Wait("stopped", "it is stopped by a signal")
    call = _call_of(pid, os_tid)
    wait = _wait_in(call, pid, name_of) if call else _wait_without_call(stat.state, pid, os_tid)
    if stat.state == "D":
        return Wait(wait.kind, f"{wait.text}, uninterruptible (state D) in {_wchan(pid, os_tid) or 'the kernel'}")
    return wait


def _wait_without_call(state: str, pid: int, os_tid: int) -> Wait:
    """Return what is known of a thread that is in no system call, or not one that we may see."""
    wchan = _wchan(pid, os_tid)
    if state == "R" or (state != "D" and wchan is None):
        return Wait("running", "it is running") if state == "R" else Wait("unknown", "the kernel does not tell")
    if wchan is not None and "futex" in wchan:
        return Wait("lock", f"a lock ({wchan})")
    if wchan is not None and "pipe_read" in wchan:
        return Wait("read", f"reads a pipe ({wchan})")
    return Wait("read" if state == "D" else "unknown", f"waits in the kernel ({wchan or 'unknown'})")


def _wait_in(call: Call, pid: int, name_of: NameOf) -> Wait:
    for names, explain in _EXPLANATIONS:
        if call.name in names:
            return explain(call, pid, name_of)
    return Wait("unknown", f"waits in {call.name}")


def _at_descriptor(call: Call, pid: int, name_of: NameOf) -> Wait:
    return describe_descriptor(pid, call.arguments[0], is_reader=call.name in _READS, name_of=name_of)


def _at_several(call: Call, pid: int, name_of: NameOf) -> Wait:
    fds = _polled(call, pid)
    if len(fds) == 1:
        return describe_descriptor(pid, fds[0], is_reader=True, name_of=name_of)
    kinds = sorted({_short(pid, fd) for fd in fds})
    return Wait(
        "events", f"waits for any of {len(fds)} descriptors ({', '.join(kinds)})" if fds else "waits for events"
    )


def _polled(call: Call, pid: int) -> list[int]:
    """Return the descriptors that a call to poll was given; none where it was another call."""
    if call.name not in ("poll", "ppoll"):
        return []
    address, count = call.arguments[0], min(call.arguments[1], _MOST_POLLED)
    data = _memory(pid, address, count * _POLL_FD.size)
    return [fd for fd, _, _ in _POLL_FD.iter_unpack(data[: len(data) // _POLL_FD.size * _POLL_FD.size])]


def _at_path(call: Call, pid: int, name_of: NameOf) -> Wait:
    address = call.arguments[0] if call.name == "open" else call.arguments[1]
    path = _memory(pid, address, _PATH_BYTES).partition(b"\0")[0].decode(errors="replace")
    return Wait("read", f"opens {path or 'a file'}")


def _at_lock(call: Call, pid: int, name_of: NameOf) -> Wait:
    if call.name in ("flock", "fcntl"):
        return Wait("lock", f"a lock of {processes.link(pid, f'fd/{call.arguments[0]}') or 'a file'}")
    return Wait("lock", f"a lock ({call.name} {call.arguments[0]:#x})")


def _at_child(call: Call, pid: int, name_of: NameOf) -> Wait:
    child = call.arguments[1] if call.name == "waitid" else call.arguments[0]
    known = 0 < child < 1 << 22
    return Wait("child", f"waits for the end of {name_of(child)}" if known else "waits for the end of a child")


def describe_descriptor(pid: int, fd: int, *, is_reader: bool, name_of: NameOf) -> Wait:
    """Return what it means to wait at a descriptor."""
    kind, does = ("read", "reads") if is_reader else ("write", "writes")
    pipe = pipe_of(pid, fd)
    if pipe is not None:
        return Wait(kind, f"{does} a pipe; {other_end(pipe, pid, is_reader=is_reader, name_of=name_of)}")
    link = processes.link(pid, f"fd/{fd}")
    if link.startswith("socket:"):
        return Wait(kind, f"{does} a socket{_far_end(pid, link)}")
    if link.startswith(_TERMINALS):
        return Wait("terminal", f"{does} the terminal {link}")
    if link.startswith("/dev/nvidia"):
        return Wait("gpu", f"waits for the GPU ({link})")
    return Wait(kind, f"{does} {link or f'descriptor {fd}'}")


def _far_end(pid: int, link: str) -> str:
    """Return where a TCP socket is connected to; nothing of any other."""
    inode = link.removeprefix("socket:[").removesuffix("]")
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if len(fields) > 9 and fields[9] == inode:
                return f" connected to {_address(fields[2])}"
    return ""


def _address(word: str) -> str:
    """Return an address of /proc/net/tcp as people write it: of version 4 with its numbers, else its port alone."""
    host, _, port = word.partition(":")
    if len(host) == 8:
        return f"{'.'.join(str(byte) for byte in reversed(bytes.fromhex(host)))}:{int(port, 16)}"
    return f"port {int(port, 16)}"


def _call_of(pid: int, os_tid: int) -> Call | None:
    """Return the system call that a thread is in; None where it is in none, or we may not see it."""
    try:
        words = Path(f"/proc/{pid}/task/{os_tid}/syscall").read_text().split()
        number, *arguments = (int(word, 0) for word in words)
    except (OSError, ValueError):
        return None
    return Call(name_of_call(number), tuple(arguments)) if number >= 0 and len(arguments) >= 6 else None


def _wchan(pid: int, os_tid: int) -> str | None:
    """Return the function of the kernel that a thread sleeps in."""
    try:
        name = Path(f"/proc/{pid}/task/{os_tid}/wchan").read_text()
    except OSError:
        return None
    return name if name not in ("", "0") else None


def _memory(pid: int, address: int, length: int) -> bytes:
    """Return what a process has at an address; nothing where it cannot be read."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), length, address)
    except (OSError, OverflowError):
        return b""


def _short(pid: int, fd: int) -> str:
    """Return what kind of thing a descriptor is."""
    return processes.link(pid, f"fd/{fd}").partition(":")[0] or "unknown"


_Explanation = Callable[[Call, int, NameOf], Wait]
_EXPLANATIONS: tuple[tuple[tuple[str, ...], _Explanation], ...] = (
    ((*_READS, *_WRITES), _at_descriptor),
    (("poll", "ppoll"), _at_several),
    (
        ("select", "pselect6", "epoll_wait", "epoll_pwait"),
        lambda call, pid, name_of: Wait("events", "waits for events"),
    ),
    (_LOCKS, _at_lock),
    (_OPENS, _at_path),
    (("wait4", "waitid"), _at_child),
    (_SLEEPS, lambda call, pid, name_of: Wait("sleep", "sleeps")),
    (_FLUSHES, lambda call, pid, name_of: Wait("flush", f"waits for the disk ({call.name})")),
    (
        ("ioctl",),
        lambda call, pid, name_of: describe_descriptor(pid, call.arguments[0], is_reader=True, name_of=name_of),
    ),
)
