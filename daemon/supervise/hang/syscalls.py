"""Names of the system calls that a thread can wait in, by their numbers on this machine."""

from __future__ import annotations

import platform

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


def name_of(number: int) -> str:
    """Return the name of a system call, its number in words where it is not one that waits."""
    return _NAMES.get(number, f"system call {number}")
