"""Ask NCCL's RAS about a run, and ask for and read the dumps of torch's flight recorder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.collectives import flightrecorder, ras
from profd.daemon.collectives.client import NoAnswer
from profd.daemon.collectives.flightrecorder import BadDump, read_dump
from profd.daemon.collectives.ras import Answer, Ras
from profd.daemon.events import EventKind
from profd.daemon.hangs.look import Look
from profd.daemon.naming import listed
from profd.daemon.stacks.source import is_library
from profd.daemon.store.records import EventHappened, Put
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member
from profd.daemon.userfiles import Unanswered, files_of


def read_dumps(members: Collection[Member], since_ns: int) -> dict[int, str]:
    """Return by rank what flight recorders' dumps since ``since_ns`` say of a hang. Blocks."""
    found = {}
    for member in members:
        pid, rank = member.identity.pid, member.rank
        if rank is None or not member.is_training:
            continue
        for path in flightrecorder.paths_of(
            processes.environment(pid, flightrecorder.VARIABLES), rank
        ):
            try:
                open_ones = read_dump(files_of(pid).read(path), since_ns, is_library)
            except (BadDump, OSError, Unanswered):
                continue
            if open_ones:
                words = listed([one.in_words() for one in open_ones], 3)
                found[rank] = f"flight recorder of rank {rank}: {words}"
                break
    return found


def ask_for_dumps(look: Look) -> bool:
    """Ask the flight recorders of ranks for dumps, and return whether one was asked. Blocks."""
    # A dump has stacks of Python, and waits for its lock.
    locked = {row.member.identity for row in look.standing if row.wait.kind == "gil"}
    ranks = [row.member for row in look.mains() if row.member.identity not in locked]
    asked = (_ask_for_dump(one.identity.pid, one.rank) for one in ranks if one.rank is not None)
    return sum(asked) > 0


def _ask_for_dump(pid: int, rank: int) -> bool:
    """Write into the pipe that torch itself has made and reads; it never waits for room in it."""
    name = flightrecorder.pipe_of(processes.environment(pid, flightrecorder.VARIABLES), rank)
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir() if name else ():
            if path.readlink().name == name and path.is_fifo():
                file = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                with os.fdopen(file, "wb", buffering=0) as pipe:
                    about = os.fstat(file)  # by now it may be another file
                    if stat.S_ISFIFO(about.st_mode) and about.st_uid == processes.owner_uid(pid):
                        return bool(pipe.write(b"1"))
    return False


@dataclass(eq=False)
class JobInquiry:
    """Asks RAS about the ranks of a run.

    ``learn`` takes the ranks of processes whose environment does not say them.
    """

    clock: Clock
    put: Put
    learn: Callable[[dict[int, int]], object] = lambda _: None
    find: Callable[..., Ras | None] = ras.find

    def __post_init__(self) -> None:
        self._said: set[str] = set()
        self._pids: tuple[int, ...] = ()
        self._found: Ras | None = None

    def ask(self, members: Collection[Member]) -> Answer | None:
        """Return what RAS says of these processes, or None, with a note of why, if it says nothing.

        Blocks.
        """
        # Leave out workers, which come and go: for each new set of processes a memory map is read.
        pythons = (
            member
            for member in members
            if member.python is not None and member.role != roles.WORKER
        )
        pids = tuple(member.identity.pid for member in pythons)
        try:
            if self._found is None or pids != self._pids:
                self._found, self._pids = self.find(pids), pids
            if self._found is None:
                return None
            answer = self._found.ask()
        except NoAnswer as reason:
            self._found = None
            self._say(f"NCCL's counts are not known: {reason}")
            return None
        self.learn(answer.ranks())
        return answer

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.put(EventHappened(self.clock.now_ns(), EventKind.NOTE, text))
