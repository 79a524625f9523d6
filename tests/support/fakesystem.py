"""A made-up system for the diagnosis of what cannot be attached to: its processes and what the kernel allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from profd.daemon.rights import Credentials
from profd.daemon.tree.attachable import System

ADA, BOB, ROOT = 1000, 1001, 0


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


@dataclass
class FakeSystem(System):
    """A system with these processes, looked at by ``uid``."""

    processes: dict[int, FakeProcess]
    uid: int = ADA
    capable: bool = False
    scope: int = 0
    container: bool = False
    hidden: bool = False

    def credentials(self, pid: int) -> Credentials | None:
        process = self.processes.get(pid)
        if process is None:
            return None
        return Credentials(process.name, process.tgid or pid, process.state, process.uids, process.is_kernel_thread)

    def is_hidden(self, pid: int) -> bool:
        return self.hidden

    def may_read_all(self) -> bool:
        return self.capable

    def ptrace_scope(self) -> int:
        return self.scope

    def in_container(self) -> bool:
        return self.container

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

    def dump_failure(self, pid: int) -> str:
        return self.processes[pid].py_spy_says
