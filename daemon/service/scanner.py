"""The Python processes of a host and their jobs.

Here is what /proc says of them, and the rules for recording.

A process changes mostly while it is young: it becomes another program, and it loads torch. Listing
the processes is cheap, looking at one is not. So the older a process is, the more seldom it is
looked at.

A rank belongs to its launcher, a DataLoader worker to the process that started it; a training that
a notebook or a test starts is a job by itself, unless what starts it meets the rules too.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.boundedreads import BoundedReads, Unread
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.naming import is_profd
from profd.daemon.service.configuration import Configuration, Exclusion, JobRule
from profd.daemon.store.records import Identity
from profd.daemon.tree.attachable import TORCH_LIBRARY

_GPU_DEVICE = (
    "/dev/nvidia"  # a CUDA context maps the driver's devices, which loading torch alone does not
)
_PYTHON = re.compile(r"/python[\d.]*[a-z]*( \(deleted\))?$")


class HostProgram(msgspec.Struct, frozen=True):
    """A process; its ``command`` includes secrets: it is compared, and never stored."""

    identity: Identity
    parent: int
    uid: int
    command: tuple[str, ...]


class ProcessInfo(HostProgram, frozen=True):
    """A Python process."""

    uses_torch: bool
    uses_gpu: bool
    age_s: float


class HostProcesses:
    """The processes of this host that this user may record: its own, those of all users for root.

    It belongs to one thread. Methods that read a process's memory raise Unread if that takes too
    long.
    """

    def __init__(self) -> None:
        self._uid = os.geteuid()
        self._reads = BoundedReads()
        self._strangers: dict[int, tuple[str, int]] = {}
        """Processes without Python: their program, and how often their maps were looked at."""

    def begin_turn(self) -> None:
        """Give the processes of each user their time anew."""
        self._reads.begin_turn()

    def pids(self) -> set[int]:
        found = set(processes.pids())
        for pid in self._strangers.keys() - found:
            del self._strangers[pid]
        return found

    def age_s(self, pid: int) -> float:
        stat = processes.read_stat(pid)
        return stat.age_s if stat is not None else 0.0

    def look(self, pid: int) -> ProcessInfo | None:
        """Return a process; None if it is no Python, profd's own, another user's, or gone."""
        maps = self._maps_of_python(pid)
        if maps is None:
            return None
        found = self.program(pid)
        if found is None or self._uid not in (0, found.uid):
            return None
        if not found.command or is_profd(found.command):
            return None
        program = found.identity, found.parent, found.uid, found.command
        uses_torch, uses_gpu = TORCH_LIBRARY in maps, _GPU_DEVICE in maps
        return ProcessInfo(*program, uses_torch, uses_gpu, self.age_s(pid))

    def _maps_of_python(self, pid: int) -> str | None:
        """Return the maps of a Python; None if the process is none, which is cheap from then on."""
        executable = processes.link(pid, "exe")
        if _PYTHON.search(executable):
            return self._reads.read(pid, processes.maps)
        known, looks = self._strangers.get(pid, ("", 0))
        looks = looks if known == executable else 0
        # An embedded Python is loaded early: to look into the maps of every program again and again
        # would be dear.
        if not executable or looks == 5:
            return None
        self._strangers[pid] = (executable, looks + 1)
        is_python = self._reads.read(pid, processes.python_version) is not None
        return self._reads.read(pid, processes.maps) if is_python else None

    def program(self, pid: int) -> HostProgram | None:
        stat, uid = processes.read_stat(pid), processes.owner_uid(pid)
        if stat is None or uid is None or not stat.is_running:
            return None
        return HostProgram(Identity(pid, stat.start_ticks), stat.ppid, uid, self._command(pid))

    def uid(self, root: Identity) -> int | None:
        """Return the user of this very process; None if it has ended."""
        return processes.owner_uid(root.pid) if processes.is_running(*root) else None

    def descendants(self, pid: int) -> set[int]:
        return set(processes.descendants(pid))

    def cpu_s(self, pid: int) -> float:
        return sum(stat.cpu_s for stat in processes.read_stats({pid, *self.descendants(pid)}))

    def recorded(self) -> set[int]:
        """Return the PIDs whose stacks any session of their users or of root records."""
        claims = []
        for pid in self.pids():
            with contextlib.suppress(Unread):
                claims.append((pid, _recorded_by(self._command(pid))))
        # Whoever may not trace a process cannot claim that it does.
        owner = processes.owner_uid
        return {
            target
            for pid, target in claims
            if target is not None and owner(pid) in (0, owner(target))
        }

    def _command(self, pid: int) -> tuple[str, ...]:
        return self._reads.read(pid, processes.command_line)


def _recorded_by(command: tuple[str, ...]) -> int | None:
    """Return the PID that a command of py-spy's records, as sessions start it: its last word."""
    is_recording = command[:2] == ("py-spy", "record") and command[-2] == "--pid"
    return int(command[-1]) if is_recording and re.fullmatch(r"[0-9]{1,7}", command[-1]) else None


@dataclass(eq=False)
class ProcessScanner:
    """The processes of the host, and when each is to be looked at."""

    table: HostProcesses
    clock: Clock
    _due_ns: dict[int, int] = field(default_factory=dict, init=False)
    _began_ns: dict[int, int] = field(default_factory=dict, init=False)

    def poll(self) -> list[ProcessInfo]:
        now_ns, pids = self.clock.now_ns(), self.table.pids()
        for pid in self._due_ns.keys() - pids:
            del self._due_ns[pid], self._began_ns[pid]
        for pid in pids - self._due_ns.keys():
            self._due_ns[pid] = now_ns
            self._began_ns[pid] = now_ns - int(self.table.age_s(pid) * SECOND_NS)
        due = sorted((due_ns, pid) for pid, due_ns in self._due_ns.items() if due_ns <= now_ns)
        return [process for _, pid in due if (process := self._look(pid, now_ns)) is not None]

    def _look(self, pid: int, now_ns: int) -> ProcessInfo | None:
        """Look at a process, and again the later the older it is.

        One that could not be read comes after others.
        """
        self.look_again(pid, 1.0)
        with contextlib.suppress(Unread):
            found = self.table.look(pid)
            self.look_again(
                pid, min(max((now_ns - self._began_ns[pid]) / SECOND_NS / 2, 1.0), 60.0)
            )
            return found
        return None

    def look_again(self, pid: int, in_s: float) -> None:
        if pid in self._due_ns:
            self._due_ns[pid] = self.clock.now_ns() + int(in_s * SECOND_NS)

    def settle(self, pid: int) -> None:
        """Do not look at a process again before ``look_again``."""
        if pid in self._due_ns:
            self._due_ns[pid] = 1 << 62


def matching_rule(configuration: Configuration, process: ProcessInfo) -> JobRule | None:
    """Return the rule that a process meets, its age aside; of several the one of the least age."""
    if any(_names(exclusion, process) for exclusion in configuration.exclude):
        return None
    met = (
        rule
        for rule in configuration.rule
        if process.uses_torch >= rule.torch
        and process.uses_gpu >= rule.gpu
        and _names(rule, process)
    )
    return min(met, key=lambda rule: rule.min_age_s, default=None)


def _names(rule: JobRule | Exclusion, process: ProcessInfo) -> bool:
    """Say whether a process has the command and the user that a rule names.

    One that names none takes any.
    """
    if rule.command and re.search(rule.command, " ".join(process.command)) is None:
        return False
    return (
        not rule.users
        or str(process.uid) in rule.users
        or processes.user_name(process.uid) in rule.users
    )


_LAUNCHERS = frozenset(
    {
        "mpirun",
        "mpiexec",
        "mpiexec.hydra",
        "orterun",
        "prterun",
        "orted",
        "prted",
        "hydra_pmi_proxy",
        "srun",
    }
)


class HostJob(msgspec.Struct, frozen=True):
    """The processes that one session records: ``root`` and all below it.

    ``member`` is the PID that met the rule.
    """

    root: Identity
    member: int
    rule: str
    command: tuple[str, ...]  # of the root, as it stands, secrets included
    uid: int


def job_of(
    process: ProcessInfo, rule: str, table: HostProcesses, configuration: Configuration
) -> HostJob | None:
    """Return the job of a process that meets a rule.

    None if `profd run` launched it and so records it.
    """
    job = HostJob(process.identity, process.identity.pid, rule, process.command, process.uid)
    pid = process.parent
    for _ in range(12):
        if pid <= 1 or (above := table.program(pid)) is None:
            break
        if is_profd(above.command):
            return None
        if above.uid == process.uid:
            is_launcher = bool(above.command) and Path(above.command[0]).name in _LAUNCHERS
            python = None if is_launcher else table.look(pid)
            if is_launcher or (
                python is not None and matching_rule(configuration, python) is not None
            ):
                job = HostJob(above.identity, process.identity.pid, rule, above.command, above.uid)
        pid = above.parent
    return job
