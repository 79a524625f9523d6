"""What is known of a running Python process that may have to be recorded, as far as /proc tells. Reads no memory."""

from __future__ import annotations

import os
import re

import msgspec

from profd.daemon import processes
from profd.daemon.host.reads import Reads
from profd.daemon.store.records import Identity
from profd.daemon.supervise.attachable import TORCH_LIBRARY, is_profd

# A CUDA context maps the driver's devices, which loading torch alone does not.
_GPU_DEVICE = "/dev/nvidia"
_PYTHON = re.compile(r"/python[\d.]*[a-z]*( \(deleted\))?$")
_LIBPYTHON = "/libpython"
# An embedded Python is loaded early: to look into the maps of every program again and again would be dear.
_LOOKS_AT_MAPS = 5
_PID = re.compile(r"[0-9]{1,7}")


class Subject(msgspec.Struct, frozen=True):
    """A Python process; its ``command`` is as it stands, secrets included: it is compared, and never stored."""

    identity: Identity
    parent: int
    uid: int
    uses_torch: bool
    uses_gpu: bool
    age_s: float
    command: tuple[str, ...]


class Program(msgspec.Struct, frozen=True):
    """A process of any kind, as its descendants see it."""

    identity: Identity
    parent: int
    uid: int
    command: tuple[str, ...]


class ProcTable:
    """The processes of this host that this user may record: its own, those of all users for root."""

    def __init__(self) -> None:
        self._uid = os.geteuid()
        self._reads = Reads()
        self._strangers: dict[int, tuple[str, int]] = {}
        """Who runs no Python: its program, and how often its maps were looked at."""

    def pids(self) -> set[int]:
        """Return the PIDs of all processes."""
        found = set(processes.pids())
        for pid in self._strangers.keys() - found:
            del self._strangers[pid]
        return found

    def age_s(self, pid: int) -> float:
        """Return for how long a process has run; 0 where it is gone."""
        stat = processes.read_stat(pid)
        return stat.age_s if stat is not None else 0.0

    def look(self, pid: int) -> Subject | None:
        """Return what is known of a process; None where it is no Python, profd's own, not ours, or gone."""
        maps = self._maps_of_python(pid)
        if maps is None:
            return None
        uid, stat, command = processes.owner_uid(pid), processes.read_stat(pid), self._command(pid)
        if uid is None or self._uid not in (0, uid) or stat is None or not command or is_profd(command):
            return None
        uses_torch, uses_gpu = TORCH_LIBRARY in maps, _GPU_DEVICE in maps
        return Subject(Identity(pid, stat.start_ticks), stat.ppid, uid, uses_torch, uses_gpu, stat.age_s, command)

    def _maps_of_python(self, pid: int) -> str | None:
        """Return what a Python has mapped; None where the process is none. Cheap for what was none before."""
        executable = processes.link(pid, "exe")
        if not executable:
            return None
        if _PYTHON.search(executable):
            return self._maps(pid)
        known, looks = self._strangers.get(pid, ("", 0))
        if known != executable:
            looks = 0
        if looks == _LOOKS_AT_MAPS:
            return None
        self._strangers[pid] = (executable, looks + 1)
        maps = self._maps(pid)
        return maps if _LIBPYTHON in maps else None

    def program(self, pid: int) -> Program | None:
        """Return what runs under a PID, whosever it is; None where it is gone."""
        stat, uid = processes.read_stat(pid), processes.owner_uid(pid)
        if stat is None or uid is None or not stat.is_running:
            return None
        return Program(Identity(pid, stat.start_ticks), stat.ppid, uid, self._command(pid))

    def descendants(self, pid: int) -> set[int]:
        """Return the PIDs of the living descendants of a process."""
        found: set[int] = set()
        waiting = processes.children(pid)
        while waiting:
            child = waiting.pop()
            if child not in found:  # who is adopted meanwhile may be met twice
                found.add(child)
                waiting += processes.children(child)
        return found

    def cpu_s(self, pid: int) -> float:
        """Return the CPU seconds that a process and its living descendants have used."""
        stats = map(processes.read_stat, {pid, *self.descendants(pid)})
        return sum(stat.cpu_ticks for stat in stats if stat is not None) / processes.CLOCK_TICKS

    def recorded(self) -> set[int]:
        """Return the PIDs whose stacks are being recorded, by whatever session of their users or of root."""
        return {
            recorded
            for pid in self.pids()
            if (recorded := _recorded_by(self._command(pid))) is not None
            # Whoever may not trace a process cannot claim that it does.
            and processes.owner_uid(pid) in (0, processes.owner_uid(recorded))
        }

    def _maps(self, pid: int) -> str:
        return self._reads.read(pid, lambda: processes.maps(pid), "")

    def _command(self, pid: int) -> tuple[str, ...]:
        return self._reads.read(pid, lambda: processes.command_line(pid), ())


def _recorded_by(command: tuple[str, ...]) -> int | None:
    """Return the PID in a command that is a recording of py-spy's, as sessions start it: its last word."""
    is_recording = command[:2] == ("py-spy", "record") and command[-2] == "--pid"
    return int(command[-1]) if is_recording and _PID.fullmatch(command[-1]) else None
