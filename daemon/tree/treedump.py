"""The stacks of a whole process tree at this moment, equal ones together. Nothing is stopped while it is looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.rights import Rights
from profd.daemon.secrets import mask_command
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread, DumpFailed, take_dump
from profd.daemon.tree.attachable import check_attachable


class DumpedProcess(msgspec.Struct, frozen=True):
    """A process with its threads; ``error`` says why there are none."""

    pid: int
    command: tuple[str, ...]
    threads: tuple[DumpedThread, ...] = ()
    error: str = ""


class MergedStack(msgspec.Struct, frozen=True):
    """A stack, the innermost frame first, with the threads that stand in it, by name."""

    owners: tuple[str, ...]
    frames: tuple[DumpedFrame, ...]


def dump_tree(pid: int) -> list[DumpedProcess]:
    """Look at the Python processes of a tree; raises where ``pid`` cannot be looked at, others have ``error``."""
    check_attachable(pid)
    found = []
    for member in (pid, *Rights().descendants(pid)):
        if processes.python_version(member) is not None:
            command = mask_command(processes.command_line(member))
            try:
                found.append(DumpedProcess(member, command, take_dump(member)))
            except DumpFailed as error:
                found.append(DumpedProcess(member, command, error=str(error)))
    return found


def merge(dumped: Sequence[DumpedProcess]) -> list[MergedStack]:
    """Return each distinct stack once: those of main threads first, then by how many stand in them."""
    standing: defaultdict[tuple[DumpedFrame, ...], list[str]] = defaultdict(list)
    for process in dumped:
        for thread in process.threads:
            mark = " (GIL)" if thread.owns_gil else " (active)" if thread.active else ""
            standing[thread.frames].append(f"pid {process.pid} {thread.thread_name or 'thread'}{mark}")
    merged = [MergedStack(tuple(owners), frames) for frames, owners in standing.items()]
    merged.sort(key=lambda stack: (not any(" MainThread" in owner for owner in stack.owners), -len(stack.owners)))
    return merged
