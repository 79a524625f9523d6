"""What is known of a running Python process that may have to be recorded, as far as /proc tells. Reads no memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.store.records import Identity
from profd.daemon.supervise.attachable import TORCH_LIBRARY, is_profd

# A CUDA context maps the driver's devices, which loading torch alone does not.
_GPU_DEVICE = "/dev/nvidia"
_PYTHON = re.compile(r"python[\d.]*[a-z]*$")
_LIBPYTHON = "/libpython"
# An embedded Python is loaded early: to look into the maps of every program again and again would be dear.
_YOUNG_S = 30.0


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

    def pids(self) -> set[int]:
        """Return the PIDs of all processes."""
        return {int(name) for name in os.listdir(processes.PROC) if name.isdecimal()}

    def look(self, pid: int) -> Subject | None:
        """Return what is known of a process; None where it is no Python, profd's own, not ours, or gone."""
        uid = processes.owner_uid(pid)
        if uid is None or self._uid not in (0, uid):
            return None
        stat = processes.read_stat(pid)
        if stat is None or stat.state in "ZX":
            return None
        age_s = processes.uptime_s() - stat.start_ticks / processes.CLOCK_TICKS
        maps = _maps_of_python(pid, age_s)
        if maps is None:
            return None
        command = processes.command_line(pid)
        if not command or is_profd(command):
            return None
        uses_torch, uses_gpu = TORCH_LIBRARY in maps, _GPU_DEVICE in maps
        return Subject(Identity(pid, stat.start_ticks), stat.ppid, uid, uses_torch, uses_gpu, age_s, command)

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


def _maps_of_python(pid: int, age_s: float) -> str | None:
    """Return what a Python has mapped; None where the process is none."""
    try:
        executable = str((processes.PROC / str(pid) / "exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        return None
    is_python = _PYTHON.match(Path(executable).name) is not None
    if not is_python and age_s > _YOUNG_S:
        return None
    try:
        maps = (processes.PROC / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        maps = ""
    return maps if is_python or _LIBPYTHON in maps else None
