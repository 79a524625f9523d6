"""What a thread waits for, by its state, its system call and what lies behind its descriptors.

All of it is read from /proc; a word of the thread's memory only where a system call was given its descriptors there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.supervise.hang.pipes import NameOf, other_end, pipe_of
from profd.daemon.supervise.hang.syscalls import name_of as name_of_call

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
