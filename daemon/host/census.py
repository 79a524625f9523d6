"""Which processes are to be looked at now: each when it is new, and again the less often the older it grows.

What a process is changes mostly while it is young: it becomes another program, and it loads torch. To list the
processes is cheap, to look at one is not; so hundreds of processes cost little more than their list.
"""

from __future__ import annotations

from typing import Protocol

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.host.subject import Program, Subject

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

    def look(self, pid: int) -> Subject | None:
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

    def poll(self) -> list[Subject]:
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
