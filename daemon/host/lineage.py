"""The job that a process belongs to: the topmost process above it that is part of the same training. Pure.

A rank belongs to its launcher, a DataLoader worker to the process that started it; a training that a notebook or a
test starts is a job by itself, unless what starts it meets the rules too.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from profd.daemon.host.census import ProcessTable
from profd.daemon.host.rules import Rules
from profd.daemon.host.subject import Program, Subject
from profd.daemon.store.records import Identity
from profd.daemon.supervise.attachable import is_profd

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


def job_of(subject: Subject, rule: str, table: ProcessTable, rules: Rules) -> Job | None:
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
