"""The stacks of a whole process tree at this moment, equal ones together. Nothing is stopped while it is looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.rights import Rights
from profd.daemon.secrets import mask_command
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread, DumpFailed, take_dump
from profd.daemon.tree.diagnosis import check_attachable


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
    """Look at a process and all below it, as far as they are Python.

    Raises the error that says why a process cannot be looked at; of those below it, that is in ``error``.
    """
    check_attachable(pid)
    members = (pid, *Rights().descendants(pid))
    return [_dump(member) for member in members if processes.python_version(member) is not None]


def merge(dumped: Sequence[DumpedProcess]) -> list[MergedStack]:
    """Return each distinct stack once: those of main threads first, then by how many stand in them."""
    standing: defaultdict[tuple[DumpedFrame, ...], list[str]] = defaultdict(list)
    for process in dumped:
        for thread in process.threads:
            standing[thread.frames].append(f"pid {process.pid} {thread.thread_name or 'thread'}{_mark(thread)}")
    merged = [MergedStack(tuple(owners), frames) for frames, owners in standing.items()]
    return sorted(merged, key=lambda stack: (not _has_main(stack), -len(stack.owners)))


def _dump(pid: int) -> DumpedProcess:
    """Look at one process; one that cannot be read says why."""
    words = mask_command(processes.command_line(pid))
    try:
        return DumpedProcess(pid=pid, command=words, threads=take_dump(pid))
    except DumpFailed as error:
        return DumpedProcess(pid=pid, command=words, error=str(error))


def _has_main(stack: MergedStack) -> bool:
    """Say whether a main thread is among the owners of a stack."""
    return any(" MainThread" in owner for owner in stack.owners)


def _mark(thread: DumpedThread) -> str:
    """Return what the thread is at: holding the GIL, or on the CPU without it."""
    return " (GIL)" if thread.owns_gil else " (active)" if thread.active else ""
