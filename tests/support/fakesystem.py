"""A made-up system for the diagnosis of what cannot be attached to: its processes and what the
kernel allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from profd.daemon.containers import ProcessPlace
from profd.daemon.rights import Credentials
from profd.daemon.tree.attachable import System
from profd.daemon.tree.unread import Reason

ADA, BOB, ROOT = 1000, 1001, 0
NOWHERE = ProcessPlace()


@dataclass
class FakeProcess:
    name: str = "python"
    uids: tuple[int, int, int] = (ADA, ADA, ADA)
    state: str = "S"
    tgid: int | None = None
    executable: str | None = "/usr/bin/python3.11"
    python: str | None = "3.11"
    is_kernel_thread: bool = False
    children: list[int] = field(default_factory=list)
    denied: int = 0
    py_spy_says: str = ""
    place: ProcessPlace = NOWHERE
    unread: Reason | None = None


@dataclass
class FakeSystem(System):
    """A system with these processes, looked at by ``uid``."""

    processes: dict[int, FakeProcess]
    uid: int = ADA
    capable: bool = False
    scope: int = 0
    here: ProcessPlace = NOWHERE
    hidden: bool = False
    filtered: bool = False
    module: str = ""
    slurm: bool = False

    def credentials(self, pid: int) -> Credentials | None:
        process = self.processes.get(pid)
        if process is None:
            return None
        return Credentials(
            process.name, process.tgid or pid, process.state, process.uids, process.is_kernel_thread
        )

    def is_hidden(self, pid: int) -> bool:
        return self.hidden

    def may_read_all(self) -> bool:
        return self.capable

    def ptrace_scope(self) -> int:
        return self.scope

    def place(self, pid: int | str = "self") -> ProcessPlace:
        return self.here if isinstance(pid, str) else self.processes[pid].place

    def is_filtered(self, pid: int) -> bool:
        return self.filtered

    def security_module(self) -> str:
        return self.module

    def has_slurm(self) -> bool:
        return self.slurm

    def descendants(self, pid: int) -> Iterator[int]:
        for child in self.processes[pid].children:
            yield child
            yield from self.descendants(child)

    def executable(self, pid: int) -> str | None:
        return self.processes[pid].executable

    def python_version(self, pid: int) -> str | None:
        return self.processes[pid].python

    def read_memory(self, pid: int) -> int:
        return self.processes[pid].denied

    def why_unread(self, pid: int) -> Reason | None:
        return self.processes[pid].unread

    def dump_failure(self, pid: int) -> str:
        return self.processes[pid].py_spy_says
