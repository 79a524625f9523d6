"""What is known of a running Python process that may have to be recorded, as far as /proc tells. Reads no memory."""

from __future__ import annotations

import os
import re

import msgspec

from profd.daemon import processes
from profd.daemon.store.records import Identity
from profd.daemon.supervise.attachable import TORCH_LIBRARY, is_profd

# A CUDA context maps the driver's devices, which loading torch alone does not.
_GPU_DEVICE = "/dev/nvidia"
_PYTHON = re.compile(r"/python[\d.]*[a-z]*( \(deleted\))?$")
_LIBPYTHON = "/libpython"
# An embedded Python is loaded early: to look into the maps of every program again and again would be dear.
_LOOKS_AT_MAPS = 5


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
        self._strangers: dict[int, tuple[str, int]] = {}
        """Who runs no Python: its program, and how often its maps were looked at."""

    def pids(self) -> set[int]:
        """Return the PIDs of all processes."""
        found = {int(name) for name in os.listdir(processes.PROC) if name.isdecimal()}
        for pid in self._strangers.keys() - found:
            del self._strangers[pid]
        return found

    def age_s(self, pid: int) -> float:
        """Return for how long a process has run; 0 where it is gone."""
        stat = processes.read_stat(pid)
        return _age_s(stat) if stat is not None else 0.0

    def look(self, pid: int) -> Subject | None:
        """Return what is known of a process; None where it is no Python, profd's own, not ours, or gone."""
        maps = self._maps_of_python(pid)
        if maps is None:
            return None
        uid, stat, command = processes.owner_uid(pid), processes.read_stat(pid), processes.command_line(pid)
        if uid is None or self._uid not in (0, uid) or stat is None or not command or is_profd(command):
            return None
        uses_torch, uses_gpu = TORCH_LIBRARY in maps, _GPU_DEVICE in maps
        return Subject(Identity(pid, stat.start_ticks), stat.ppid, uid, uses_torch, uses_gpu, _age_s(stat), command)

    def _maps_of_python(self, pid: int) -> str | None:
        """Return what a Python has mapped; None where the process is none. Cheap for what was none before."""
        try:
            executable = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115  Path costs double, and there are hundreds
        except OSError:
            return None
        if _PYTHON.search(executable):
            return _maps(pid)
        known, looks = self._strangers.get(pid, ("", 0))
        if known != executable:
            looks = 0
        if looks == _LOOKS_AT_MAPS:
            return None
        self._strangers[pid] = (executable, looks + 1)
        maps = _maps(pid)
        return maps if _LIBPYTHON in maps else None

    def program(self, pid: int) -> Program | None:
        """Return what runs under a PID, whosever it is; None where it is gone."""
        stat, uid = processes.read_stat(pid), processes.owner_uid(pid)
        if stat is None or uid is None or stat.state in "ZX":
            return None
        return Program(Identity(pid, stat.start_ticks), stat.ppid, uid, processes.command_line(pid))

    def descendants(self, pid: int) -> set[int]:
        """Return the PIDs of the living descendants of a process."""
        children = processes.children(pid)
        return set(children).union(*map(self.descendants, children))

    def recorded(self) -> set[int]:
        """Return the PIDs whose stacks are being recorded, by whatever session of whatever user."""
        commands = map(processes.command_line, self.pids())
        return {int(command[-1]) for command in commands if _is_recording(command)}


def _is_recording(command: tuple[str, ...]) -> bool:
    """Say whether a command is a recording of py-spy's, as sessions start it: the PID is its last word."""
    return command[:2] == ("py-spy", "record") and command[-2] == "--pid" and command[-1].isdecimal()


def _age_s(stat: processes.Stat) -> float:
    return processes.uptime_s() - stat.start_ticks / processes.CLOCK_TICKS


def _maps(pid: int) -> str:
    try:
        return (processes.PROC / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        return ""
