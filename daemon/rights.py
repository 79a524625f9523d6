"""What the kernel lets this process read of other processes, and why it refuses.

``python -m profd.daemon.rights PROGRAM [WORD ...]`` becomes a program without these rights.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from profd.daemon import paths, processes
from profd.daemon.containers import ProcessPlace, place_of
from profd.daemon.landlock import confine
from profd.daemon.prctl import Setting, settle

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_SELINUX = Path("/sys/fs/selinux")
_READ_LENGTH = 8
_VERSION_3 = 0x20080522


class Credentials(msgspec.Struct, frozen=True):
    """The identity of a process or thread.

    ``uids`` are the real, effective and saved user ids, and ``tgid`` is the PID.
    """

    name: str
    tgid: int
    state: str
    uids: tuple[int, int, int]
    is_kernel_thread: bool


class Rights:
    """The rights of this process, by the running kernel."""

    def __init__(self) -> None:
        self.uid = os.geteuid()

    def credentials(self, pid: int) -> Credentials | None:
        """Return the credentials of a process, from one of its living threads.

        None if there is none, or it is hidden.
        """
        fields = processes.status(processes.shown_as(pid))
        if not fields:
            return None
        real, effective, saved, _ = map(int, fields["Uid"].split())
        state, uids = fields["State"][0], (real, effective, saved)
        is_kernel = "VmSize" not in fields and state not in "ZX"
        return Credentials(fields["Name"], int(fields["Tgid"]), state, uids, is_kernel)

    def is_hidden(self, pid: int) -> bool:
        """Say whether a process exists that /proc does not show us.

        A /proc that is mounted with hidepid is such a case.
        """
        # The kernel's own limit: os.kill would take a larger one for a negative number, or refuse
        # it.
        if pid > 2**22:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def may_read_all(self) -> bool:
        """Say whether this process has CAP_SYS_PTRACE, the right to read everyone's processes."""
        effective = processes.status("self").get("CapEff", "0")
        return bool(int(effective, 16) >> 19 & 1)  # its number

    def ptrace_scope(self) -> int:
        """Return Yama's ptrace_scope, 0 to 3; 0 if the kernel has no Yama."""
        return processes.read_number(str(_YAMA)) or 0

    def place(self, pid: int | str = "self") -> ProcessPlace:
        """Return the place of a process, of profd itself if none is named."""
        return place_of(pid)

    def in_container(self) -> bool:
        """Say whether profd runs in a container, as far as one can tell from inside."""
        return bool(self.place().runtime)

    def is_filtered(self, pid: int) -> bool:
        """Say whether a seccomp filter keeps profd from reading.

        In that case the kernel opens the memory, but forbids the call.
        """
        if processes.status("self").get("Seccomp") != "2":
            return False
        try:
            os.close(os.open(processes.PROC / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def security_module(self) -> str:
        """Return the security module that confines profd.

        It is ``SELinux``, ``AppArmor``, or empty if neither does. SELinux leaves an unconfined
        process alone, unless its boolean forbids ptrace to all.
        """
        label = processes.read(f"{processes.PROC}/self/attr/current") or b""
        forbids_all = processes.read_text(str(_SELINUX / "booleans/deny_ptrace")).startswith("1")
        if processes.read_number(str(_SELINUX / "enforce")) == 1 and (
            forbids_all or b":unconfined_t:" not in label
        ):
            return "SELinux"
        return "AppArmor" if label.rstrip(b"\n\0").endswith(b"(enforce)") else ""

    def descendants(self, pid: int) -> Iterator[int]:
        """Return the PIDs of a process's living descendants, the nearest first.

        profd's own processes are left out.
        """
        return processes.descendants(pid, but=os.getpid())

    def executable(self, pid: int) -> str | None:
        """Return the path of the program that a process runs.

        None if we may not look.
        """
        return processes.link(pid, "exe") or None

    def python_version(self, pid: int) -> str | None:
        return processes.python_version(pid)

    def read_memory(self, pid: int) -> int:
        """Try to read some bytes of a process's memory, as py-spy does.

        Return 0, or the error's number.
        """
        try:
            pid = processes.shown_as(pid)
            with (processes.PROC / str(pid) / "maps").open() as maps:
                readable = (line for line in maps if line.split(" ", 2)[1].startswith("r"))
                address = int(next(readable, "0").partition("-")[0], 16)
        except OSError as error:  # we may not read its map
            return error.errno or errno.EIO
        if not address:
            return errno.ESRCH
        buffer, one = ctypes.create_string_buffer(_READ_LENGTH), ctypes.c_ulong(1)
        into, of = (
            struct.pack("@PN", at, _READ_LENGTH) for at in (ctypes.addressof(buffer), address)
        )
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.process_vm_readv(pid, into, one, of, one, ctypes.c_ulong(0))
        # EFAULT: access was granted, but the mapping has gone in the meantime.
        return 0 if done >= 0 or ctypes.get_errno() == errno.EFAULT else ctypes.get_errno()


def drop(*folders: Path) -> None:
    """Give up all capabilities, for good, and all files but Python's own and those in ``folders``.

    Only root has capabilities. No program that is executed later gets any of them back.
    """
    if os.geteuid() != 0:
        return
    settle(Setting.NO_NEW_PRIVILEGES, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "the rights of root cannot be given up")
    confine(folders)


if __name__ == "__main__":
    drop(paths.runs_folder().parent, paths.own_file("phases.toml").parent)
    os.execv(sys.argv[1], sys.argv[1:])
