"""Ask NCCL's RAS about a run, and read the dumps of torch's flight recorder."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.collectives import flightrecorder, ras
from profd.daemon.collectives.client import NoAnswer
from profd.daemon.collectives.flightrecorder import BadDump, read_dump
from profd.daemon.collectives.ras import Answer, Ras
from profd.daemon.events import EventKind
from profd.daemon.stacks.source import is_library
from profd.daemon.store.records import EventHappened, Identity, Put
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
                more = f" and {len(open_ones) - 3} more" if len(open_ones) > 3 else ""
                words = "; ".join(one.in_words() for one in open_ones[:3])
                found[rank] = f"flight recorder of rank {rank}: {words}{more}"
                break
    return found


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
        self._check(members, answer.ranks())
        return answer

    def _check(self, members: Collection[Member], ranks: dict[int, int]) -> None:
        """Compare NCCL's ranks with those of the environment.

        Ranks that the environment does not say are passed on.
        """
        for member in members:
            pid, placed = member.identity.pid, member.placement
            if placed is not None and ranks.get(pid, placed.rank) != placed.rank:
                text = (
                    f"pid {pid} is rank {placed.rank} by its environment, and {ranks[pid]} by NCCL"
                )
                self._say(text, member.identity)
        self.learn(ranks)

    def _say(self, text: str, identity: Identity | None = None) -> None:
        if text not in self._said:
            self._said.add(text)
            self.put(EventHappened(self.clock.now_ns(), EventKind.NOTE, text, identity))
