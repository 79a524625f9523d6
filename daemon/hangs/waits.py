"""Tell what a thread waits for: its state, its system call, the other end of its pipe or socket.

All of it is read from /proc. A word of the thread's memory is read only if a system call keeps its
descriptors there.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.controlgroups import is_frozen
from profd.daemon.naming import listed
from profd.daemon.paths import NETWORK_FILE_SYSTEMS, mount_of
from profd.daemon.sockets import endpoint, internet_sockets
from profd.daemon.systemcalls import system_call

_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
# A machine has tens of thousands of descriptors: what is not found by then stays unknown.
_DEADLINE_S = 1.0
_MOST_NAMED = 4

NameOf = Callable[[int], str]
"""Returns the name of the process with a PID."""


Pipe = tuple[int, int]
"""A pipe or FIFO on this machine: its device and inode."""


def pipe_of(pid: int, fd: int) -> Pipe | None:
    try:
        found = Path(f"/proc/{pid}/fd/{fd}").stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISFIFO(found.st_mode) else None


def holders(pipe: Pipe, mode: int) -> list[int] | None:
    """Return the PIDs that profd sees with an end of a pipe open for O_RDONLY or O_WRONLY.

    Returns None if looking took too long.
    """
    deadline_s = time.monotonic() + _DEADLINE_S
    found = []
    for pid in processes.pids():
        if time.monotonic() > deadline_s:
            return None
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                ends = (entry.name for entry in entries if pipe_of(pid, int(entry.name)) == pipe)
                if any(_is_open_for(pid, fd, mode) for fd in ends):
                    found.append(pid)
        except OSError:
            continue
    return found


def _wait_at_pipe(pipe: Pipe, pid: int, *, is_reader: bool, name_of: NameOf) -> Wait:
    """Return the wait of ``pid`` at a pipe, with the processes that hold its other end."""
    kind, does, end = ("read", "reads", "writing") if is_reader else ("write", "writes", "reading")
    found = holders(pipe, os.O_WRONLY if is_reader else os.O_RDONLY)
    if found is None:
        return Wait(kind, f"{does} a pipe; who holds its {end} end was not found in time")
    others = tuple(holder for holder in found if holder != pid)
    held = f"its {end} end is held by {listed(list(map(name_of, others)), _MOST_NAMED)}"
    if not others:
        held = (
            f"it alone holds the {end} end"
            if found
            else f"no process that we see holds its {end} end"
        )
    return Wait(kind, f"{does} a pipe; {held}", peers=others)


def name_of_stranger(pid: int) -> str:
    """Return the PID and the kernel's name of a process that does not belong to the run."""
    found = processes.read_stat(pid)
    return f"pid {pid} ({found.comm})" if found else f"pid {pid}"


def _is_open_for(pid: int, fd: str, mode: int) -> bool:
    match = _FLAGS.search(processes.read(f"/proc/{pid}/fdinfo/{fd}") or b"")
    return match is not None and int(match[1], 8) & os.O_ACCMODE in (mode, os.O_RDWR)


_READS = (
    "read",
    "pread64",
    "readv",
    "recvfrom",
    "recvmsg",
    "accept",
    "accept4",
    "getdents64",
    "ioctl",
)
_WRITES = ("write", "pwrite64", "writev", "sendto", "sendmsg", "connect")
_TRANSFERS = ("read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg")
_POLL_FD = struct.Struct("=ihh")
_EPOLL_FD = re.compile(rb"^tfd: *(\d+) ", re.MULTILINE)
_PRIVATE = 128
"""FUTEX_PRIVATE_FLAG of linux/futex.h: only threads of this process can end such a wait."""
_FD_SETSIZE = 1024
"""No set of `select` has more descriptors, in glibc."""
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")


class Wait(NamedTuple):
    """What a thread waits for, and the kind of the wait.

    ``is_transfer`` is True if only data ends the wait, and no timeout. ``peers`` are the PIDs of
    the processes that could end it, as far as profd sees: those at the other end of a pipe, or the
    child; or threads of its own process, by their ids there. None if they are unknown.
    """

    kind: str
    """The kind of the wait.

    It is stopped, frozen, running, lock, gil, read, write, terminal, flush, child, sleep, polling,
    events, gpu or unknown.
    """
    text: str
    is_transfer: bool = False
    peers: tuple[int, ...] | None = None


def read_wait(pid: int, os_tid: int, name_of: NameOf) -> Wait:
    """Return what a thread waits for; ``name_of`` names other processes."""
    stat = processes.read_stat(pid, os_tid)
    if stat is None:
        return Wait("unknown", "it is gone")
    if stat.state in "Tt":
        return Wait("stopped", "it is stopped by a signal")
    if is_frozen(pid, os_tid):  # its state before says nothing of what it waits for
        return Wait("frozen", "it is frozen with its control group")
    call = system_call(pid, os_tid)
    wchan = _wchan(pid, os_tid) if call is None or stat.state == "D" else ""
    wait = _wait_in(*call, pid, name_of) if call else _wait_without_call(stat.state, wchan)
    if stat.state == "D":
        return wait._replace(
            text=f"{wait.text}, uninterruptible (state D) in {wchan or 'the kernel'}"
        )
    return wait


def _wait_without_call(state: str, wchan: str) -> Wait:
    """Return the wait of a thread whose system call profd does not see.

    The kernel function in which the thread sleeps tells it.
    """
    if state == "R":
        return Wait("running", "it is running")
    if "futex" in wchan:
        return Wait("lock", f"a lock ({wchan})")
    if "pipe_read" in wchan:
        return Wait("read", f"reads a pipe ({wchan})")
    if state != "D" and not wchan:
        return Wait("unknown", "the kernel does not say")
    return Wait(
        "read" if state == "D" else "unknown", f"waits in the kernel ({wchan or 'unknown'})"
    )


def _wait_in(call: str, first: int, second: int, pid: int, name_of: NameOf) -> Wait:
    """Return the wait of a thread in a system call whose first arguments are these."""
    match call:
        case name if name in _READS or name in _WRITES:
            wait = _wait_at(pid, first, is_reader=call in _READS, name_of=name_of)
            return wait._replace(is_transfer=call in _TRANSFERS)
        case "poll" | "ppoll" | "select" | "pselect6":
            return _wait_at_any(pid, _polled(pid, call, first, second), name_of)
        case "epoll_wait" | "epoll_pwait":
            return _wait_for_events(pid, first)
        case "flock" | "fcntl":
            return Wait("lock", f"a lock of {processes.link(pid, f'fd/{first}') or 'a file'}")
        case "futex" | "futex_waitv" | "semop" | "semtimedop":
            lost = _lost_in_fork(pid, call, second, name_of)
            return Wait("lock", f"a lock ({call} {first:#x}){lost}")
        case "open" | "openat" | "newfstatat":
            path = _memory(pid, first if call == "open" else second, 256).partition(b"\0")[0]
            name = path.decode(errors="replace") or "a file"
            return Wait("read", f"opens {name}{_served_by(pid, name)}")
        case "wait4" | "waitid":
            child = second if call == "waitid" else first
            if not 0 < child < 1 << 22:
                return Wait("child", "waits for the end of a child")
            return Wait("child", f"waits for the end of {name_of(child)}", peers=(child,))
        case "nanosleep" | "clock_nanosleep":
            return Wait("sleep", "sleeps")
        case "fsync" | "fdatasync" | "msync" | "sync":
            return Wait("flush", f"waits for the disk ({call})")
    return Wait("unknown", f"waits in {call}")


def _polled(pid: int, call: str, first: int, second: int) -> list[int]:
    """Return the descriptors that a call waits for; the call keeps them in memory."""
    if call.endswith("poll"):
        data = _memory(pid, first, min(second, 16) * _POLL_FD.size)
        return [fd for fd, _, _ in _POLL_FD.iter_unpack(data[: len(data) & ~7])]
    most = min(first, _FD_SETSIZE)
    bits = int.from_bytes(_memory(pid, second, (most + 7) // 8), "little")
    return [fd for fd in range(most) if bits >> fd & 1]


def _wait_for_events(pid: int, epoll_fd: int) -> Wait:
    """Return the wait of a thread in epoll: for what is typed, if it watches a terminal."""
    watched = map(int, _EPOLL_FD.findall(processes.read(f"/proc/{pid}/fdinfo/{epoll_fd}") or b""))
    return _typed_at(pid, watched) or Wait("events", "waits for events")


def _typed_at(pid: int, fds: Iterable[int]) -> Wait | None:
    """Return the wait for what a user types, or None if no descriptor is a terminal."""
    links = (processes.link(pid, f"fd/{fd}") for fd in fds)
    terminal = next((link for link in links if link.startswith(_TERMINALS)), None)
    return Wait("terminal", f"reads the terminal {terminal}") if terminal else None


def _wait_at_any(pid: int, fds: list[int], name_of: NameOf) -> Wait:
    """Return the wait at several descriptors; a prompt waits at others beside the terminal."""
    if len(fds) == 1:
        return _wait_at(pid, fds[0], is_reader=True, name_of=name_of)
    if typed := _typed_at(pid, fds):
        return typed
    kinds = sorted({processes.link(pid, f"fd/{fd}").partition(":")[0] or "unknown" for fd in fds})
    text = (
        f"waits for any of {len(fds)} descriptors ({', '.join(kinds)})"
        if fds
        else "waits for events"
    )
    return Wait("events", text)


def _wait_at(pid: int, fd: int, *, is_reader: bool, name_of: NameOf) -> Wait:
    pipe = pipe_of(pid, fd)
    if pipe is not None:
        return _wait_at_pipe(pipe, pid, is_reader=is_reader, name_of=name_of)
    kind, does = ("read", "reads") if is_reader else ("write", "writes")
    link = processes.link(pid, f"fd/{fd}")
    if link.startswith("socket:"):
        return Wait(kind, f"{does} a socket{_far_end(pid, link)}")
    # a write waits for the terminal's reader, not for what a user types
    if link.startswith(_TERMINALS):
        return Wait("terminal" if is_reader else kind, f"{does} the terminal {link}")
    if link.startswith("/dev/nvidia"):
        return Wait("gpu", f"waits for the GPU ({link})")
    return Wait(kind, f"{does} {link or f'descriptor {fd}'}{_served_by(pid, link)}")


def _far_end(pid: int, link: str) -> str:
    """Return the other end of a TCP or UDP socket, or an empty text for any other socket."""
    for one in internet_sockets(pid):
        if one.link == link:
            (host, port), by = endpoint(one.remote), " by UDP" if one.is_udp else ""
            to = f"port {port}" if ":" in host else f"{host}:{port}"
            return f" connected to {to}{by}"
    return ""


def _served_by(pid: int, path: str) -> str:
    """Return which file system a path is on if it is one that others serve; else an empty text."""
    mount = mount_of(Path(path), processes.read_text(f"{processes.PROC}/{pid}/mounts"))
    if not mount.kind.startswith(NETWORK_FILE_SYSTEMS):
        return ""
    return f" of {mount.source} ({mount.kind} at {mount.at})"


def _lost_in_fork(pid: int, call: str, operation: int, name_of: NameOf) -> str:
    """Return that no thread can release a lock, or an empty text if one could.

    A process that was forked has one thread only, but all locks as they were.
    """
    found = processes.read_stat(pid)
    is_own = call == "futex" and operation & _PRIVATE
    if not is_own or found is None or found.threads > 1:
        return ""
    text = ", and its process has no other thread that could release it"
    parent = processes.read_stat(found.ppid)
    # each program has its stack at another address
    if not found.image or parent is None or parent.image != found.image:
        return text
    return f"{text}: it is a fork of {name_of(found.ppid)}, whose threads are gone in it"


def _wchan(pid: int, os_tid: int) -> str:
    """Return the kernel function in which a thread sleeps, or an empty text if it does not say."""
    name = (processes.read(f"/proc/{pid}/task/{os_tid}/wchan") or b"").decode()
    return "" if name == "0" else name


def _memory(pid: int, address: int, length: int) -> bytes:
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), length, address)
    except (OSError, OverflowError):
        return b""
