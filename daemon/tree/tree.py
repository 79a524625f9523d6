"""Follow the processes of a run as they come and go.

It also shows the stacks of a whole tree at this moment.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from profd.daemon import processes
from profd.daemon.boundedreads import BoundedReads, Unread
from profd.daemon.clock import Clock
from profd.daemon.events import EventKind
from profd.daemon.frameworks.frames import function_means
from profd.daemon.interpreter.frames import Code
from profd.daemon.interpreter.integers import local_integer
from profd.daemon.interpreter.memory import variables_now
from profd.daemon.rights import Rights
from profd.daemon.secrets import mask_command
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread, DumpFailed, take_dump
from profd.daemon.stacks.origin import ANY, Origin, origin_of
from profd.daemon.store.records import Frame, Identity, Placement, ProcessSeen, ThreadId
from profd.daemon.tree import roles
from profd.daemon.tree.attachable import check_attachable
from profd.daemon.tree.exitstatus import ProcessWatch, status_of
from profd.daemon.tree.roles import VARIABLES, placement_of
from profd.daemon.tree.unread import why_unread

Value = TypeVar("Value")
FULL_SCAN_EVERY = 4
_THREADS_AT_ONCE = 64
"""The full scan of a process becomes rarer with each further this many threads.

A full scan reads a file of each thread.
"""


class Member(msgspec.Struct):
    """A living process of the tree, as it is known now.

    A process that is itself a rank has a ``placement``.
    """

    identity: Identity
    parent: Identity | None
    command: tuple[str, ...]
    role: str
    rank: int | None
    ordinal: int | None
    python: str | None
    image: int
    placement: Placement | None = None
    origin: Origin = ANY
    looks: int = 0
    """How many recordings were taken while it had no place in a job.

    The 1st, 2nd, 4th, … look for a place.
    """
    tries: int = 0
    """The same count for the number with which it was spawned."""
    trains: bool = False
    """Whether its stacks have shown that it trains."""
    leader: ThreadId | None = None
    """The thread that leads it, if that is not the main one (session/leading.py)."""
    polls: int = 0
    """How many times it was looked at while it was no Python.

    The 1st, 2nd, 4th, … look checks whether it has become one.
    """
    starts_workers: bool = False
    """Whether its stacks have shown that it starts workers: what it forks is taken for one."""
    is_proven: bool = False
    """Whether its own stacks have shown that it is a worker."""
    has_ranks: bool = False
    """Whether it is a script that starts its ranks itself; other children need not be ranks."""
    exec_ns: int = 0
    """A time before it began the program that it runs now, while that could not be read; else 0."""

    @property
    def is_training(self) -> bool:
        """Whether it is a Python that trains, or may be: no worker, helper or launcher."""
        return self.role == roles.MAIN and self.python is not None


class ProcessChange(msgspec.Struct, frozen=True):
    """A process is new, runs another program, has loaded Python, or has ended: see ``kind``.

    ``exit_status`` is as of ``waitpid``, if it is known.
    """

    kind: EventKind
    member: Member
    exit_status: int | None = None


@dataclass(eq=False)
class ProcessTree:
    """A process and its descendants, including those whose parent is gone.

    The descendants are left out if ``subprocesses`` is False.

    A process that takes too long to read is not added yet, or stays as it was. The next look reads
    it again.
    """

    root: Identity
    mask: Callable[[Sequence[str]], tuple[str, ...]]
    clock: Clock
    subprocesses: bool = True
    folder: str = ""
    """The folder in which the root was started, if that is known."""
    reads: BoundedReads = field(default_factory=BoundedReads)
    """Bounded reads of memory: its owner may make it any size, and let reads hang."""

    def __post_init__(self) -> None:
        self.members: dict[Identity, Member] = {}
        self._watches: dict[Identity, ProcessWatch] = {}
        self._scans, self._has_begun = 0, False
        self._polled_ns, self._before_ns = self.clock.now_ns(), 0

    def poll(self) -> list[ProcessChange]:
        """Look at the tree and return what changed since the last look, parents first."""
        self.reads.begin_turn()
        changes = [] if self._has_begun else self._add([self.root.pid], None)
        self._has_begun = self._has_begun or bool(changes)
        self._before_ns, self._polled_ns = self._polled_ns, self.clock.now_ns()
        full = self._scans % FULL_SCAN_EVERY == 0
        self._scans += 1
        # Ends first: what follows on a worker takes its number.
        for member in list(self.members.values()):
            changes += self._look_at(member)
        pending, known = list(self.members.values()), {identity.pid for identity in self.members}
        while pending:
            member = pending.pop(0)
            if self.subprocesses:
                of_all = full and self._scans_fully(member)
                children = processes.children(member.identity.pid, of_all_threads=of_all)
                # The known children are looked at already.
                appeared = self._add([pid for pid in children if pid not in known], member)
                changes += appeared
                pending += [change.member for change in appeared]
        return changes

    def _scans_fully(self, member: Member) -> bool:
        stat = processes.read_stat(member.identity.pid)
        every = FULL_SCAN_EVERY * (1 + (stat.threads if stat else 0) // _THREADS_AT_ONCE)
        return (self._scans - 1) % every == 0

    def take_stacks(self, identity: Identity, stacks: Sequence[Sequence[Frame]]) -> list[Member]:
        """Learn a member's role from its stacks, and a rank that it has set itself.

        Returns the members that changed.
        """
        member = self.members.get(identity)
        if member is None:
            return []
        member.trains = member.trains or roles.is_training(stacks)
        if member.role == roles.MAIN:
            member.starts_workers |= roles.starts_workers(stacks)
            if self._learn_place(member) or self._learn_number(member, stacks):
                return [member, *self._inherit(member)]
            return []
        if member.trains and (changed := self._take_trainer(member)):  # in a pool of processes too
            return changed
        return self._take_work(member, stacks)

    def _take_work(self, member: Member, stacks: Sequence[Sequence[Frame]]) -> list[Member]:
        """Learn whether a process that trains nothing is a worker."""
        is_known = member.is_proven or member.role == roles.LAUNCHER or not stacks
        is_worker, was_worker = roles.is_worker(stacks), member.role == roles.WORKER
        member.is_proven |= is_worker
        if is_known or is_worker == was_worker:
            return []
        member.role = roles.WORKER if is_worker else roles.HELPER
        member.ordinal = self._next_ordinal(member) if is_worker else None
        return [member]

    def _take_trainer(self, member: Member) -> list[Member]:
        """Make a training process a main process; returns the members that changed.

        Scripts that start their ranks by ``torch.multiprocessing`` only wait: they are launchers. A
        process that trains itself stays a main process, and its children helpers.
        """
        if member.role == roles.LAUNCHER:
            member.role = roles.MAIN
            return [member]
        above = self._parent_of(member)
        while above is not None and above.role == roles.HELPER:
            above = self._parent_of(above)
        if above is None or above.trains or above.role == roles.WORKER:
            return []
        member.role, member.ordinal = roles.MAIN, self._next_ordinal(member)
        return [member, *self._take_launcher(above)]

    def _take_launcher(self, member: Member) -> list[Member]:
        changed = [member] if member.role == roles.MAIN else []
        member.role, member.has_ranks = roles.LAUNCHER, True
        return changed

    def _parent_of(self, member: Member) -> Member | None:
        return self.members.get(member.parent) if member.parent else None

    def _next_ordinal(self, member: Member) -> int:
        others = (other for other in self.members.values() if other is not member)
        return roles.next_ordinal(
            [other.ordinal for other in others if other.parent == member.parent]
        )

    def take_ranks(self, ranks: Mapping[int, int]) -> list[Member]:
        """Learn which processes (by PID) are which rank of a job.

        Returns the members that changed, among those without a placement from their environment.

        The process that started them is no rank itself, and so a launcher.
        """
        changed = []
        for member in list(self.members.values()):
            rank = ranks.get(member.identity.pid)
            if rank is None or member.placement is not None or member.rank == rank:
                continue
            member.role, member.rank, member.ordinal = roles.MAIN, rank, None
            changed += [member, *self._inherit(member)]
            above = self._parent_of(member)
            if above is not None and above.role == roles.MAIN and above.identity.pid not in ranks:
                changed += self._take_launcher(above)
        return changed

    def _learn_place(self, member: Member) -> bool:
        """Check whether a process without a place in a job has given itself one.

        Ray Train sets RANK like that.
        """
        if member.placement is not None or member.python is None:
            return False
        member.looks += 1
        # Look only at powers of two: each look reads the process's whole memory map.
        if member.looks & (member.looks - 1):
            return False
        if not processes.is_running(*member.identity):
            return False
        variables = self._ask(member.identity.pid, lambda pid: variables_now(pid, VARIABLES))
        placement = placement_of(variables or {})
        # With Accelerate's launcher for tests each process says that it is rank 0.
        if placement is None or self._is_taken(placement.rank, member):
            return False  # it keeps the rank that NCCL may have given
        member.placement, member.rank = placement, placement.rank
        return True

    def _learn_number(self, member: Member, stacks: Sequence[Sequence[Frame]]) -> bool:
        """Learn the rank of a process that ``torch.multiprocessing.spawn`` started.

        The process is one of a group, and its rank is its number on this machine.
        """
        if member.rank is not None or not roles.is_spawned_rank(stacks):
            return False
        member.tries += 1
        if member.tries & (member.tries - 1) or not processes.is_running(*member.identity):
            return False
        number = self._ask(member.identity.pid, lambda pid: local_integer(pid, _is_spawned, "i"))
        if number is None or self._is_taken(number, member):
            return False
        member.rank = number
        return True

    def _is_taken(self, rank: int, member: Member) -> bool:
        siblings = (
            other
            for other in self.members.values()
            if other is not member and other.parent == member.parent
        )
        return any(other.role == roles.MAIN and other.rank == rank for other in siblings)

    def _inherit(self, member: Member) -> list[Member]:
        """Give a rank's descendants its rank; returns the members that changed."""
        changed = []
        for child in self.members.values():
            if (
                child.parent == member.identity
                and child.role != roles.MAIN
                and child.rank != member.rank
            ):
                child.rank = member.rank
                changed += [child, *self._inherit(child)]
        return changed

    def record_of(self, member: Member) -> ProcessSeen:
        names = (name for name in ProcessSeen.__struct_fields__ if name != "at_ns")
        fields = {name: getattr(member, name) for name in names}
        return ProcessSeen(**fields, at_ns=self.clock.now_ns())

    def _look_at(self, member: Member) -> Iterator[ProcessChange]:
        identity = member.identity
        stat = processes.read_stat(identity.pid)
        if stat is None or stat.start_ticks != identity.start_ticks or not stat.is_running:
            del self.members[identity]
            yield ProcessChange(EventKind.ENDED, member, self._exit_status(identity))
        # A dying process has no image any more while the kernel takes its memory back, and names
        # nothing.
        elif stat.image not in (0, member.image):
            member.exec_ns = member.exec_ns or self._before_ns
            if self._read(member, stat.image):
                member.polls = member.exec_ns = 0
                yield ProcessChange(EventKind.EXEC, member)
        elif (
            member.python is None
            and self._has_loaded_python(member)
            and self._read(member, member.image)
        ):
            yield ProcessChange(EventKind.LOADED, member)

    def _watch(self, identity: Identity) -> None:
        # Each handle, which tells how a process ended, takes a descriptor of profd.
        if len(self._watches) < 128:
            with contextlib.suppress(OSError):
                self._watches[identity] = ProcessWatch(identity)

    def _exit_status(self, identity: Identity) -> int | None:
        """Return how a process ended, as of ``waitpid``, if the kernel tells."""
        watch = self._watches.pop(identity, None)
        if watch is None:
            return status_of(identity)
        with contextlib.closing(watch):
            return watch.status()

    def _has_loaded_python(self, member: Member) -> bool:
        """Return whether a program runs a Python now.

        It may load the library after its start, or embed Python for later use.
        """
        member.polls += 1
        is_due = not member.polls & (member.polls - 1)
        return is_due and self._ask(member.identity.pid, processes.python_version) is not None

    def _add(self, pids: Iterable[int], parent: Member | None) -> list[ProcessChange]:
        appeared = []
        for pid in pids:
            stat = processes.read_stat(pid)
            if stat is None or not stat.is_running:
                continue
            identity = Identity(pid, stat.start_ticks)
            if identity in self.members or (parent is None and identity != self.root):
                continue
            above = parent.identity if parent else None
            member = Member(identity, above, (), roles.HELPER, None, None, None, stat.image)
            if self._read(member, stat.image):
                self.members[identity] = member
                self._watch(identity)
                appeared.append(ProcessChange(EventKind.STARTED, member))
        return appeared

    def _ask(self, pid: int, ask: Callable[[int], Value]) -> Value | None:
        """Return what a process's memory says, or None if that takes too long."""
        with contextlib.suppress(Unread):
            return self.reads.read(pid, ask)
        return None

    def _read(self, member: Member, image: int) -> bool:
        """Read what a member is from its program; return False if that takes too long."""
        folder, exec_ns = (
            self.folder if member.identity == self.root else "",
            member.exec_ns or None,
        )
        program = self._ask(member.identity.pid, lambda pid: _program_of(pid, exec_ns, folder))
        if program is None:
            return False
        parent = self._parent_of(member)
        member.image, member.trains, member.has_ranks, member.leader = image, False, False, None
        member.command, member.python = self.mask(program.command), program.python
        is_forked = parent is not None and parent.image == image  # it shares its parent's code
        member.origin = parent.origin if parent is not None and is_forked else program.origin
        above = None if parent is None else roles.MAIN if parent.has_ranks else parent.role
        member.role = roles.role_of(member.command, member.python is not None, above)
        if member.role == roles.MAIN:
            member.placement = placement_of(program.variables)
            member.rank = member.placement.rank if member.placement else None
            return True
        member.placement, member.rank = None, parent.rank if parent else None
        if is_forked and parent is not None and parent.starts_workers:
            member.role, member.ordinal = roles.WORKER, self._next_ordinal(member)
        return True


class _Program(NamedTuple):
    """What a process's memory says of its program."""

    command: tuple[str, ...]
    python: str | None
    origin: Origin
    variables: dict[str, str]


def _is_spawned(code: Code) -> bool:
    return function_means(code.name, code.file, "spawned")


def _program_of(pid: int, exec_ns: int | None, folder: str) -> _Program:
    """Read it; it began after ``exec_ns``, in ``folder``, if these are known. Blocks."""
    command, python = processes.command_line(pid), processes.python_version(pid)
    variables = processes.environment(pid, VARIABLES)
    return _Program(command, python, origin_of(pid, exec_ns, folder), variables)


class DumpedProcess(msgspec.Struct, frozen=True):
    """A process with its threads.

    ``error`` says why there are none, or why none of them has a stack.
    """

    pid: int
    command: tuple[str, ...]
    threads: tuple[DumpedThread, ...] = ()
    error: str = ""


class MergedStack(msgspec.Struct, frozen=True):
    """A stack, the innermost frame first, with the names of the threads that have it.

    ``native`` are the frames that the innermost one called, if they were read.
    """

    owners: tuple[str, ...]
    frames: tuple[DumpedFrame, ...]
    native: tuple[str, ...] = ()


def dump_tree(pid: int, *, native: bool = False) -> list[DumpedProcess]:
    """Take a snapshot of the Python processes of a tree, if asked with their native frames.

    Raises if ``pid`` cannot be attached to; a descendant that cannot be read has ``error``.
    """
    check_attachable(pid)
    found = []
    for member in (pid, *Rights().descendants(pid)):
        if processes.python_version(member) is not None:
            command = mask_command(processes.command_line(member))
            try:
                threads, error = take_dump(member), ""
            except DumpFailed as failure:
                threads, error = (), str(failure)
            if (
                not any(thread.frames for thread in threads)
                and (reason := why_unread(member)) is not None
            ):
                error = f"{reason.what}{f' (py-spy: {error})' if error else ''}; {reason.remedy}"
            found.append(DumpedProcess(member, command, threads, error))
    return _with_native(found) if native else found


def _with_native(dumped: Sequence[DumpedProcess]) -> list[DumpedProcess]:
    """Return processes with native frames, and with what is known of Python's lock."""
    from profd.daemon.native.gil import waits_for_gil
    from profd.daemon.native.joined import with_native

    stacks = with_native({process.pid: process.threads for process in dumped})
    found = []
    for process in dumped:
        threads, why = stacks[process.pid]
        waits = waits_for_gil(process.pid, threads)
        noted = tuple(
            replace(one, note=wait.text) if (wait := waits.get(one.os_thread_id or 0)) else one
            for one in threads
        )
        error = "; ".join(filter(None, (process.error, why)))
        found.append(replace(process, threads=noted, error=error))
    return found


def merge(dumped: Sequence[DumpedProcess]) -> list[MergedStack]:
    """Return each distinct stack once.

    Stacks of main threads come first, then those that most threads have, and at last those without
    Python.
    """
    standing: defaultdict[tuple[tuple[DumpedFrame, ...], tuple[str, ...]], list[str]]
    standing = defaultdict(list)
    for process in dumped:
        for thread in process.threads:
            marks = ["GIL"] if thread.owns_gil else ["active"] if thread.active else []
            marks += [thread.note] if thread.note else []
            mark = f" ({'; '.join(marks)})" if marks else ""
            standing[thread.frames, thread.native].append(
                f"pid {process.pid} {thread.thread_name or 'thread'}{mark}"
            )
    merged = [MergedStack(tuple(owners), *stack) for stack, owners in standing.items()]
    merged.sort(
        key=lambda stack: (
            not any(" MainThread" in owner for owner in stack.owners),
            not stack.frames and bool(stack.native),
            -len(stack.owners),
        )
    )
    return merged
