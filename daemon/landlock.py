"""Confines a process to the files that it needs, by the kernel's Landlock.

This is permanent, and applies to everything that the process starts. User id 0 owns most secrets of
a machine, and an owner needs no capability to read a file.
"""

from __future__ import annotations

import ctypes
import enum
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # numbers of system calls, the same everywhere
_BENEATH = 1
_RULE = struct.Struct("=Qi")


class _Access(enum.IntFlag):
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    REMOVE_FOLDER = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_FOLDER = 1 << 7
    MAKE_FILE = 1 << 8
    MAKE_SOCKET = 1 << 9
    MAKE_LINK = 1 << 12


_SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/proc", "/sys", "/nix/store")
# Files there that the C library and Python read: to load libraries, and to look up hosts, users,
# certificates and times.
_SETTINGS = (
    "ld.so.cache",
    "ld.so.preload",
    "localtime",
    "hosts",
    "resolv.conf",
    "nsswitch.conf",
    "host.conf",
    "gai.conf",
    "services",
    "protocols",
    "passwd",
    "group",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki",
    "ca-certificates",
    "mime.types",
)


def confine(folders: Iterable[Path]) -> bool:
    """Restrict this thread to ``folders``, temporary files, and Python.

    It may only read Python and the files that Python needs. Processes that it starts have no more
    rights. False if the kernel has no Landlock (before Linux 5.13, or turned off): then nothing
    changes. Open files stay open.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    every = sum(_Access)
    handled = struct.pack("=Q", every)
    ruleset = libc.syscall(_CREATE, handled, ctypes.c_size_t(len(handled)), 0)
    if ruleset < 0:
        return False
    try:
        own = os.environ.get("TMPDIR", "/tmp")
        for path in (*folders, *map(Path, (own, "/tmp", "/var/tmp", "/dev"))):
            _allow(libc, ruleset, path, every)
        for path in (
            *map(Path, _SYSTEM),
            *(Path("/etc") / name for name in _SETTINGS),
            *_of_python(),
        ):
            _allow(libc, ruleset, path, _Access.READ_FILE)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _of_python() -> list[Path]:
    """Return the folders of Python, its packages and profd.

    The working folder is never among them, because it may be the root folder.
    """
    own = Path(__file__).resolve().parents[1]
    packages = [
        Path(entry).resolve() for entry in sys.path if entry not in ("", "/", str(Path.cwd()))
    ]
    return [own, Path(sys.prefix), Path(sys.base_prefix), *packages]


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # there is no such file here
        return
    try:
        # A rule for a file must not name an access that only folders have.
        access = access if path.is_dir() else access & (_Access.WRITE_FILE | _Access.READ_FILE)
        libc.syscall(_ADD_RULE, ruleset, _BENEATH, _RULE.pack(access, fd), 0)
    finally:
        os.close(fd)
