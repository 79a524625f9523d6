"""The system call that a thread waits in, as /proc shows it."""

from __future__ import annotations

import platform
import re

from profd.daemon import processes

# Name, number on x86-64 and number on aarch64 of the system calls that wait.
_NUMBERS = """
    read 0 63                 write 1 64                pread64 17 67             pwrite64 18 68
    readv 19 65               writev 20 66              open 2 -                  openat 257 56
    newfstatat 262 79         getdents64 217 61         poll 7 -                  ppoll 271 73
    select 23 -               pselect6 270 72           epoll_wait 232 -          epoll_pwait 281 22
    accept 43 202             accept4 288 242           connect 42 203            recvfrom 45 207
    recvmsg 47 212            sendto 44 206             sendmsg 46 211            futex 202 98
    futex_waitv 449 449       semop 65 193              semtimedop 220 192        flock 73 32
    fcntl 72 25               fsync 74 82               fdatasync 75 83           msync 26 227
    sync 162 81               wait4 61 260              waitid 247 95             nanosleep 35 101
    clock_nanosleep 230 115   pause 34 -                rt_sigsuspend 130 133
    rt_sigtimedwait 128 137
    ioctl 16 29
"""
_COLUMN = {"x86_64": 1, "aarch64": 2}.get(platform.machine())
_ROWS = re.findall(r"(\w+) (\S+) (\S+)", _NUMBERS)
NAMES = {int(row[_COLUMN]): row[0] for row in _ROWS if row[_COLUMN] != "-"} if _COLUMN else {}
"""The names of system calls by their numbers; none on other machines than these two."""


def system_call(pid: int, os_tid: int) -> tuple[str, int, int] | None:
    """Return the name of the system call that a thread is in, with its first arguments.

    Returns None if profd sees none.
    """
    words = (
        (processes.read(f"{processes.PROC}/{pid}/task/{os_tid}/syscall") or b"").decode().split()
    )
    try:
        number, *arguments = (int(word, 0) for word in words)
    except ValueError:
        return None
    if number < 0 or len(arguments) < 6:
        return None
    return NAMES.get(number, f"system call {number}"), arguments[0], arguments[1]
