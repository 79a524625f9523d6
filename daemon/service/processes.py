"""The Python processes of a host and their jobs: reads of /proc with a deadline, and the rules for recording.

What a process is changes mostly while it is young: it becomes another program, and it loads torch. To list the
processes is cheap, to look at one is not; so hundreds of processes cost little more than their list.

A process that hangs in the kernel keeps the lock of its memory, and with it whoever asks for its maps or its command
line. Such a read is given up; it goes on in a thread of its own, and until it ends no other is made of that process.

A rank belongs to its launcher, a DataLoader worker to the process that started it; a training that a notebook or a
test starts is a job by itself, unless what starts it meets the rules too.
"""

from __future__ import annotations

import os
import pwd
import queue
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.service.configuration import Configuration, Exclusion, Rule
from profd.daemon.store.records import Identity
from profd.daemon.tree.attachable import TORCH_LIBRARY, is_profd

DEADLINE_S = 1.0
Value = TypeVar("Value")
_Work = tuple[Callable[[], Any], "queue.SimpleQueue[Any]"]


class Reads:
    """Reads that are made one after the other; belongs to one thread."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._reader: _Reader | None = None
        self._stuck: dict[int, _Reader] = {}

    def read(self, pid: int, ask: Callable[[], Value], otherwise: Value) -> Value:
        """Return what ``ask`` says of a process; ``otherwise`` where it does not in time, or was not before."""
        if pid in self._stuck:
            if self._stuck[pid].is_alive():
                return otherwise
            del self._stuck[pid]
        if self._reader is None:
            self._reader = _Reader()
            self._reader.start()
        answers: queue.SimpleQueue[tuple[Value | None, Exception | None]] = queue.SimpleQueue()
        self._reader.asked.put((ask, answers))
        try:
            value, error = answers.get(timeout=self._deadline_s)
        except queue.Empty:
            self._reader.asked.put(None)
            self._stuck[pid], self._reader = self._reader, None
            return otherwise
        if error is not None:
            raise error
        return value  # type: ignore[return-value]


class _Reader(threading.Thread):
    """Answers requests until it gets the one that ends it."""

    def __init__(self) -> None:
        super().__init__(name="profd-reads", daemon=True)
        self.asked: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (work := self.asked.get()) is not None:
            ask, answers = work
            try:
                answers.put((ask(), None))
            except Exception as error:  # noqa: BLE001  it is raised where it was asked for
                answers.put((None, error))


# A CUDA context maps the driver's devices, which loading torch alone does not.
_GPU_DEVICE = "/dev/nvidia"
_PYTHON = re.compile(r"/python[\d.]*[a-z]*( \(deleted\))?$")
_LIBPYTHON = "/libpython"
# An embedded Python is loaded early: to look into the maps of every program again and again would be dear.
_LOOKS_AT_MAPS = 5
_PID = re.compile(r"[0-9]{1,7}")


class ProcessInfo(msgspec.Struct, frozen=True):
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

    def look(self, pid: int) -> ProcessInfo | None:
        """Return what is known of a process; None where it is no Python, profd's own, not ours, or gone."""
        maps = self._maps_of_python(pid)
        if maps is None:
            return None
        uid, stat, command = processes.owner_uid(pid), processes.read_stat(pid), self._command(pid)
        if uid is None or self._uid not in (0, uid) or stat is None or not command or is_profd(command):
            return None
        uses_torch, uses_gpu = TORCH_LIBRARY in maps, _GPU_DEVICE in maps
        return ProcessInfo(Identity(pid, stat.start_ticks), stat.ppid, uid, uses_torch, uses_gpu, stat.age_s, command)

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


_SHORTEST_REST_S = 1.0
_LONGEST_REST_S = 60.0
_REST_OF_AGE = 0.5
_NEVER_NS = 1 << 62


class ProcessTable(Protocol):
    """What the census asks of the system; ``subject.ProcTable`` answers for the real one."""

    def pids(self) -> set[int]:
        """Return the PIDs of all processes."""
        ...

    def age_s(self, pid: int) -> float:
        """Return for how long a process has run; 0 where it is gone."""
        ...

    def look(self, pid: int) -> ProcessInfo | None:
        """Return what is known of a process; None where it is nothing to record."""
        ...

    def program(self, pid: int) -> Program | None:
        """Return what runs under a PID, whosever it is; None where it is gone."""
        ...

    def descendants(self, pid: int) -> set[int]:
        """Return the PIDs of the living descendants of a process."""
        ...

    def cpu_s(self, pid: int) -> float:
        """Return the CPU seconds that a process and its living descendants have used."""
        ...

    def recorded(self) -> set[int]:
        """Return the PIDs whose stacks are being recorded, by whatever session of whatever user."""
        ...


class Census:
    """The processes of the host, and when each is to be looked at."""

    def __init__(self, table: ProcessTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._due_ns: dict[int, int] = {}
        self._began_ns: dict[int, int] = {}

    def poll(self) -> list[ProcessInfo]:
        """Return the Python processes among those that are to be looked at now."""
        now_ns, pids = self._clock.now_ns(), self._table.pids()
        for pid in self._due_ns.keys() - pids:
            del self._due_ns[pid], self._began_ns[pid]
        for pid in pids - self._due_ns.keys():
            self._due_ns[pid] = now_ns
            self._began_ns[pid] = now_ns - int(self._table.age_s(pid) * SECOND_NS)
        due = [pid for pid, due_ns in self._due_ns.items() if due_ns <= now_ns]
        for pid in due:
            rest_s = (now_ns - self._began_ns[pid]) / SECOND_NS * _REST_OF_AGE
            self.look_again(pid, min(max(rest_s, _SHORTEST_REST_S), _LONGEST_REST_S))
        return [subject for subject in map(self._table.look, due) if subject is not None]

    def look_again(self, pid: int, in_s: float) -> None:
        """Look at a process in so many seconds, whatever was said of it before."""
        if pid in self._due_ns:
            self._due_ns[pid] = self._clock.now_ns() + int(in_s * SECOND_NS)

    def settle(self, pid: int) -> None:
        """Do not look at a process again unless it is asked for."""
        if pid in self._due_ns:
            self._due_ns[pid] = _NEVER_NS


class Rules:
    """The rules and exclusions of a configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._rules = configuration.rule
        self._exclusions = configuration.exclude

    def match(self, subject: ProcessInfo) -> Rule | None:
        """Return the rule that a process meets, its age aside: of several the one with the least age; None for none."""
        if any(_is_excluded(subject, exclusion) for exclusion in self._exclusions):
            return None
        met = [rule for rule in self._rules if _meets(subject, rule)]
        return min(met, key=lambda rule: rule.min_age_s) if met else None


def _meets(subject: ProcessInfo, rule: Rule) -> bool:
    return (
        (subject.uses_torch or not rule.torch)
        and (subject.uses_gpu or not rule.gpu)
        and _is_command(subject, rule.command)
        and _is_of(subject, rule.users)
    )


def _is_excluded(subject: ProcessInfo, exclusion: Exclusion) -> bool:
    return _is_command(subject, exclusion.command) and _is_of(subject, exclusion.users)


def _is_command(subject: ProcessInfo, pattern: str) -> bool:
    return not pattern or re.search(pattern, " ".join(subject.command)) is not None


def _is_of(subject: ProcessInfo, users: Sequence[str]) -> bool:
    return not users or str(subject.uid) in users or user_name(subject.uid) in users


def user_name(uid: int) -> str:
    """Return the name of a user; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


_LAUNCHERS = frozenset(
    {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "orted", "prted", "hydra_pmi_proxy", "srun"}
)
_MOST_GENERATIONS = 12


class Job(msgspec.Struct, frozen=True):
    """What one session records: ``root`` and all below it. ``member`` is the PID that met the rule."""

    root: Identity
    member: int
    rule: str
    command: tuple[str, ...]
    """Of the root, as it stands, secrets included."""


def job_of(subject: ProcessInfo, rule: str, table: ProcessTable, rules: Rules) -> Job | None:
    """Return the job of a process that meets a rule; None where `profd run` launched it and so records it."""
    job = Job(subject.identity, subject.identity.pid, rule, subject.command)
    pid = subject.parent
    for _ in range(_MOST_GENERATIONS):
        above = table.program(pid) if pid > 1 else None
        if above is None:
            break
        if is_profd(above.command):
            return None
        if above.uid == subject.uid and _is_part(above, table, rules):
            job = Job(above.identity, subject.identity.pid, rule, above.command)
        pid = above.parent
    return job


def _is_part(above: Program, table: ProcessTable, rules: Rules) -> bool:
    """Say whether a process above one that is to be recorded is part of the same job."""
    if above.command and Path(above.command[0]).name in _LAUNCHERS:
        return True
    subject = table.look(above.identity.pid)
    return subject is not None and rules.match(subject) is not None
