"""Native frames above the Python frames that called them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from profd.daemon import processes
from profd.daemon.native.reader import native_stacks
from profd.daemon.native.stacks import NativeProcess, NativeThread
from profd.daemon.stacks.dump import DumpedThread, DumpFailed, take_dump

CUT = "…"
"""Stands for the frames of which the walk was not sure."""
Threads = Sequence[DumpedThread]


def with_native(dumps: Mapping[int, Threads]) -> dict[int, tuple[tuple[DumpedThread, ...], str]]:
    """Return the threads of processes with their native frames, by PID.

    Takes what py-spy has just read of them. A text beside the threads says why there is none.
    """
    read = native_stacks(list(dumps))
    found = {}
    for pid, threads in dumps.items():
        again: tuple[DumpedThread, ...] = ()
        with contextlib.suppress(DumpFailed):
            again = take_dump(pid, tries=2)
        native = read[pid]
        found[pid] = joined(threads, again, native, processes.thread_ids(pid)), native.error
    return found


def joined(
    before: Threads, after: Threads, native: NativeProcess, ids: Mapping[int, int]
) -> tuple[DumpedThread, ...]:
    """Return threads with their native frames, and after them those that run no Python.

    A thread has none if its Python frames were others before than after. ``ids`` has the id in
    /proc of each thread by the one that it has for its process.
    """
    stood = {thread.os_thread_id: thread.frames for thread in after}
    own_ids = {here: own for own, here in ids.items()}
    left = {own_ids.get(one.os_thread_id): one for one in native.threads}
    found = []
    for thread in before:
        read = left.pop(thread.os_thread_id, None)
        if read is None:
            found.append(thread)
        elif stood.get(thread.os_thread_id) != thread.frames:
            found.append(replace(thread, note="no native stack: it went on meanwhile"))
        else:
            found.append(_with_frames(thread, read))
    for own, other in left.items():
        thread = DumpedThread(own, other.name, active=False, owns_gil=False, frames=())
        found.append(_with_frames(thread, other))
    return tuple(found)


def _with_frames(thread: DumpedThread, read: NativeThread) -> DumpedThread:
    if read.end and not read.frames:
        return replace(thread, note=f"no native stack: {read.end}")
    return replace(thread, native=read.frames + (CUT,) * bool(read.end))
