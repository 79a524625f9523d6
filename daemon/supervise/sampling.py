"""Samples the stacks of the members of a process tree: who, how often, and for how long at a time.

Main processes are sampled without a gap; the others in turns, because they are alike. Knows nothing of how a run
begins or ends, nor of what becomes of the records.
"""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Callable

from profd.daemon.clock import Clock
from profd.daemon.collect.governor import LOWEST_RATE_HZ, Governor
from profd.daemon.collect.stacks.chain import OVERLAP_SAMPLES, StackChain
from profd.daemon.collect.stacks.statements import Statements
from profd.daemon.store.records import EventHappened, Identity, Record
from profd.daemon.supervise import roles
from profd.daemon.supervise.tree import Member
from profd.daemon.userfiles import files_of

# From one hand-over to the next: what is lost by a kill -9, but for what it takes to start, end and write a recording.
LENGTH_S = 4.5
WATCHED_LENGTH_S = 1.6
TURN_RATE_DIVISOR = 5
# However small the budget: who has just started is to be seen, and who is a worker is told from stacks.
SMALLEST_TURN_SHARE = 0.1
SHORTEST_LENGTH_S = 0.5
CLOSING_TIMEOUT_S = 10.0
CANCELING_TIMEOUT_S = 1.0
_ROOTS_HELD = 8


class Sampling:
    """The chains of recordings of all members; ``put`` takes their records.

    While ``is_watched``, recordings are short: longer ones cost less, shorter ones are seen sooner.
    """

    def __init__(self, executable: str, governor: Governor, clock: Clock, put: Callable[[Record], object]) -> None:
        """Sample with the py-spy at ``executable``, at the rate that ``governor`` allows."""
        self.is_watched = False
        self.governor = governor
        self._executable = executable
        self._clock = clock
        self._put = put
        self._chains: dict[Identity, tuple[StackChain, asyncio.Task[None]]] = {}
        self._turn = asyncio.Semaphore(1)
        # Workers that come and go see the files that the others saw: each is read and parsed once.
        self._statements = functools.lru_cache(_ROOTS_HELD)(Statements)

    def begin(self, member: Member) -> None:
        """Sample a member from now on, unless it is sampled already."""
        if member.identity in self._chains:
            return
        source = self._statements(files_of(member.identity.pid))
        chain = StackChain(self._executable, member.identity, MemberPace(self, member), source, self._clock, self._put)
        # One that turns out to be something else stays as it began.
        run = chain.run() if member.role in (roles.MAIN, roles.LAUNCHER) else chain.run_in_turns(self._turn)
        task = asyncio.ensure_future(run)
        self._chains[member.identity] = (chain, task)
        task.add_done_callback(lambda done: self._forget(member.identity, done))

    def end(self, member: Member) -> None:
        """Sample a member no longer."""
        if member.identity in self._chains:
            self._chains[member.identity][0].stop()

    def hurry(self) -> None:
        """Hand over now what is being recorded."""
        for chain, _ in self._chains.values():
            chain.hurry()

    async def close(self) -> None:
        """End all recordings and hand over what they hold; who does not end in time is broken off."""
        tasks = {task for _, task in self._chains.values()}
        for chain, _ in self._chains.values():
            chain.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSING_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CANCELING_TIMEOUT_S)

    def _forget(self, identity: Identity, task: asyncio.Task[None]) -> None:
        self._chains.pop(identity, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error)
            self._put(EventHappened(self._clock.now_ns(), "error", f"sampling stopped: {error!r}", identity))


class MemberPace:
    """How one member is sampled now: by its role, by the governor, and by whether anyone watches."""

    def __init__(self, sampling: Sampling, member: Member) -> None:
        self._sampling = sampling
        self._member = member

    def rate_hz(self) -> int:
        """Return samples a second; who shares a turn with others gets a part of the main process's rate."""
        rate_hz = self._sampling.governor.rate_hz
        # Not below the lowest rate: a recording is waited for until it has seen something.
        part_hz = min(max(rate_hz // TURN_RATE_DIVISOR, LOWEST_RATE_HZ), rate_hz)
        return rate_hz if self._member.role == roles.MAIN else part_hz

    def length_s(self) -> float:
        """Return seconds that a recording lasts before the next one is started, which it then overlaps."""
        length_s = WATCHED_LENGTH_S if self._sampling.is_watched else LENGTH_S
        return max(length_s - OVERLAP_SAMPLES / self.rate_hz(), SHORTEST_LENGTH_S)

    def rest_ratio(self) -> float:
        """Return the seconds in which no one is recorded for each second of a turn."""
        turn_share = max(self._sampling.governor.turn_share, SMALLEST_TURN_SHARE)
        return (1 - turn_share) / turn_share
