"""Asks NCCL's RAS for a run: when that is allowed, what it teaches of ranks, and why there is no answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from profd.daemon.clock import Clock
from profd.daemon.collectives import ras
from profd.daemon.collectives.client import NoAnswer
from profd.daemon.collectives.ras import Answer, Mode, Ras
from profd.daemon.store.records import EventHappened, Identity, Record
from profd.daemon.tree.tree import Member

POLL_S = 10.0
"""How often it is asked in the modes POLL and ANY."""


@dataclass(eq=False)
class JobInquiry:
    """Asks RAS for the ranks of a run. ``learn`` takes the ranks of processes that their environment does not say."""

    mode: Mode
    clock: Clock
    put: Callable[[Record], object]
    learn: Callable[[dict[int, int]], object] = lambda _: None
    find: Callable[..., Ras | None] = ras.find

    def __post_init__(self) -> None:
        self._said: set[str] = set()
        self._pids: tuple[int, ...] = ()
        self._found: Ras | None = None

    def ask(self, members: Collection[Member]) -> Answer | None:
        """Return what RAS says of these processes; None, with a note of why, where it says nothing. Blocking."""
        pids = tuple(member.identity.pid for member in members if member.python is not None)
        try:
            if self._found is None or pids != self._pids:
                self._found, self._pids = self.find(pids, self.mode), pids
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
        """Compare NCCL's ranks with those of the environment, and pass on those that it does not say."""
        for member in members:
            pid, placed = member.identity.pid, member.placement
            if placed is not None and ranks.get(pid, placed.rank) != placed.rank:
                text = f"pid {pid} is rank {placed.rank} by its environment, and {ranks[pid]} by NCCL"
                self._say(text, member.identity)
        self.learn(ranks)

    def _say(self, text: str, identity: Identity | None = None) -> None:
        if text not in self._said:
            self._said.add(text)
            self.put(EventHappened(self.clock.now_ns(), "note", text, identity))
