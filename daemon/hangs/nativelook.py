"""Add native frames to a look at a run that hangs: in which function of C or C++ a thread waits."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from profd.daemon.hangs.knownhangs import known_hangs, versions_of
from profd.daemon.hangs.look import Look, StackState, name_of_member, stack_of
from profd.daemon.hangs.waits import name_of_stranger, read_wait
from profd.daemon.native.operations import innermost, operation_in
from profd.daemon.stacks.dump import DumpedThread, DumpFailed, take_dump
from profd.daemon.tree.tree import Member

_MOST_NAMED = 3


def with_native_frames(look: Look) -> tuple[Look, list[str]]:
    """Return a look with native frames, and facts: why there are none, and known hangs. Blocks.

    A thread has none if it has left the stack of the look. Threads that run no Python are added.
    """
    from profd.daemon.native.joined import with_native

    members = {row.member.identity.pid: row.member for row in look.standing}
    dumps: dict[int, tuple[DumpedThread, ...]] = {}
    for pid in members:
        with contextlib.suppress(DumpFailed):
            dumps[pid] = take_dump(pid, tries=2)
    found = with_native(dumps)
    threads = {(pid, one.os_thread_id): one for pid, (read, _) in found.items() for one in read}
    standing = []
    for row in look.standing:
        thread = threads.pop((row.member.identity.pid, row.os_tid), None)
        is_same = thread is not None and stack_of(thread) == row.stack
        standing.append(row._replace(native=thread.native) if thread and is_same else row)
    for (pid, _), thread in threads.items():
        if thread.native and not thread.frames:
            standing.append(_without_python(members[pid], thread))
    whys = [f"{name_of_member(members[pid])}: {why}" for pid, (_, why) in found.items() if why]
    seen = replace(look, standing=tuple(_with_operations(standing)))
    return seen, [*whys, *_known_in(seen)]


def _known_in(look: Look) -> dict[str, None]:
    """Return what is known of hangs of the versions that train, each once, in their order."""
    frames = [f"{frame.function} {frame.file}" for row in look.standing for frame in row.stack]
    frames += [frame for row in look.standing for frame in row.native]
    known = (known_hangs(versions_of(row.member.identity.pid), frames) for row in look.mains())
    return dict.fromkeys(itertools.chain.from_iterable(known))


def _with_operations(rows: Sequence[StackState]) -> Iterator[StackState]:
    """Yield rows whose waits say in which native operation, and for which thread of the process."""
    found = [
        None if one is None or one.waits_for(row.native) else one
        for row, one in ((row, operation_in(row.native)) for row in rows)
    ]
    for row, operation in zip(rows, found, strict=True):
        if operation is None:
            yield row
            continue
        text = f"{row.wait.text}, in {operation.text}"
        beside = [
            (other, its.text if its else innermost(other.native))
            for other, its in zip(rows, found, strict=True)
            if row.stack and other.member is row.member and operation.waits_for(other.native)
        ]
        for other, place in beside[:_MOST_NAMED]:
            text += f"; its thread {other.thread} ({other.os_tid}) is in {place}: {other.wait.text}"
        peers = tuple(other.os_tid or 0 for other, _ in beside) or row.wait.peers
        yield row._replace(wait=row.wait._replace(text=text, peers=peers))


def _without_python(member: Member, thread: DumpedThread) -> StackState:
    pid, name, os_tid = member.identity.pid, thread.thread_name or "thread", thread.os_thread_id
    wait = read_wait(pid, os_tid or pid, name_of_stranger)
    return StackState(member, name, False, (), wait, native=thread.native, os_tid=os_tid)
