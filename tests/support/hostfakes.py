"""A made-up host for the supervisor's parts: processes, sessions and reports that do what a test
says.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profd.daemon.errors import ProfdError, SessionFailed
from profd.daemon.service.log import JsonLog, LogLine
from profd.daemon.service.scanner import HostJob, HostProcesses, HostProgram, ProcessInfo
from profd.daemon.service.sessions import LiveSession, Sessions
from profd.daemon.service.storage import Entry, boot_id
from profd.daemon.store.records import Identity
from profd.daemon.tree.exitstatus import ProcessWatch

UID = os.geteuid()


class FakeTable(HostProcesses):
    """Processes by their PIDs; whoever has ``subjects`` is Python."""

    def __init__(self) -> None:
        self.programs: dict[int, HostProgram] = {}
        self.subjects: dict[int, ProcessInfo] = {}
        self.being_recorded: set[int] = set()
        self.looks: list[int] = []
        self.ages: dict[int, float] = {}
        self.cpu: dict[int, float] = {}
        self._ended: list[int] = []

    def add(
        self,
        pid: int,
        *command: str,
        parent: int = 1,
        torch: bool = False,
        gpu: bool = False,
        uid: int = UID,
        age_s: float = 100.0,
        python: bool = True,
    ) -> None:
        """Let a process run."""
        identity, words = (
            Identity(pid, 10 * pid + self._ended.count(pid)),
            command or ("python", "train.py"),
        )
        self.programs[pid] = HostProgram(identity, parent, uid, words)
        if python:
            self.subjects[pid] = ProcessInfo(identity, parent, uid, words, torch, gpu, age_s)

    def remove(self, pid: int) -> None:
        """Let a process end; the next one with its PID is another one."""
        self._ended.append(pid)
        del self.programs[pid]
        self.subjects.pop(pid, None)

    def begin_turn(self) -> None:
        pass

    def pids(self) -> set[int]:
        return set(self.programs)

    def uid(self, root: Identity) -> int | None:
        program = self.programs.get(root.pid)
        return program.uid if program is not None and program.identity == root else None

    def age_s(self, pid: int) -> float:
        return self.ages.get(pid, 0.0)

    def look(self, pid: int) -> ProcessInfo | None:
        self.looks.append(pid)
        return self.subjects.get(pid)

    def program(self, pid: int) -> HostProgram | None:
        return self.programs.get(pid)

    def descendants(self, pid: int) -> set[int]:
        children = {one.identity.pid for one in self.programs.values() if one.parent == pid}
        return children.union(*map(self.descendants, children))

    def cpu_s(self, pid: int) -> float:
        return self.cpu.get(pid, 0.0)

    def recorded(self) -> set[int]:
        return self.being_recorded


class Said(JsonLog):
    """A log whose lines can be read."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        super().__init__(self.stream)

    @property
    def lines(self) -> list[LogLine]:
        return [
            msgspec.json.decode(text, type=LogLine) for text in self.stream.getvalue().splitlines()
        ]

    @property
    def events(self) -> list[str]:
        return [line.event for line in self.lines]


class FakeWatch(ProcessWatch):
    """A watch on a process that ends when the test says so."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._end, self._start = os.pipe()

    def fileno(self) -> int:
        return self._end

    def end(self) -> None:
        os.close(self._start)

    def close(self) -> None:
        os.close(self._end)


@dataclass
class FakeSessions(Sessions):
    """Sessions that note their parts of the budget; ``why`` is why each will have ended."""

    parts: dict[int, float] = field(default_factory=dict)
    most_together: float = 0.0
    cpu: dict[int, float] = field(default_factory=dict)
    why: str = "target-exited"
    refusal: ProfdError | None = None
    live: dict[int, LiveSession] = field(default_factory=dict)
    adoptable: set[str] = field(default_factory=set)
    started: list[int] = field(default_factory=list)

    def start(self, job: HostJob, budget_percent: float) -> LiveSession:
        if self.refusal is not None:
            raise self.refusal
        self.started.append(job.root.pid)
        self._note(job.root.pid, budget_percent)
        return self._recording(entry_of(job.root, run=len(self.started)))

    def adopt(self, entry: Entry) -> LiveSession | None:
        return self._recording(entry) if entry.run_id in self.adoptable else None

    def allow(self, recording: LiveSession, budget_percent: float) -> None:
        self._note(recording.entry.root.pid, budget_percent)

    def cpu_s(self, recording: LiveSession) -> float:
        return self.cpu.get(recording.entry.root.pid, 0.0)

    def stop(self, recording: LiveSession) -> None:
        self.why = "stopped"
        self.end(recording.entry.root.pid)

    def close(self, recording: LiveSession) -> str:
        recording.watch.close()
        return self.why

    def end(self, pid: int) -> None:
        watch = self.live.pop(pid).watch
        assert isinstance(watch, FakeWatch)
        watch.end()
        self.parts.pop(pid, None)

    def _recording(self, entry: Entry) -> LiveSession:
        self.live[entry.root.pid] = LiveSession(
            entry, FakeWatch(Identity(90_000, 1)), Path("/none")
        )
        return self.live[entry.root.pid]

    def _note(self, pid: int, budget_percent: float) -> None:
        self.parts[pid] = budget_percent
        self.most_together = max(self.most_together, sum(self.parts.values()))


@dataclass
class FakeReporter:
    """Writes nothing; says ``incident``, or fails.

    ``meanwhile`` is called once, while the first report is written.
    """

    incident: str = ""
    failing: bool = False
    meanwhile: Callable[[], None] | None = None
    reported: list[str] = field(default_factory=list)

    async def report(self, run_id: str) -> str:
        self.reported.append(run_id)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        if self.failing:
            raise SessionFailed("it cannot be read")
        return self.incident


def entry_of(
    root: Identity | int, *, run: int = 1, ended_ns: int = 0, why: str = "", reported: bool = False
) -> Entry:
    """Return an entry of a run that was begun on this boot."""
    identity = Identity(root, 10 * root) if isinstance(root, int) else root
    return Entry(
        run_id=f"20261121-1200{run:02d}-train-00{run:02x}",
        root=identity,
        member=identity.pid,
        rule="torch",
        boot=boot_id(),
        ended_ns=ended_ns,
        why_ended=why,
        is_reported=reported,
    )
