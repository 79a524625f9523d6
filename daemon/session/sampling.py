"""Sample the stacks of a run's processes: choose which, at what rate, and for how long at a time.

Main processes are sampled without gaps; the others in turns, because most are workers, which are
alike.
"""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from profd.daemon import processes
from profd.daemon.clock import Clock, until_tick_s
from profd.daemon.events import EventKind
from profd.daemon.naming import exit_words, is_profd, signal_name
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.scheduling import FreeCores
from profd.daemon.session.budget import Governor
from profd.daemon.session.leading import Leaders
from profd.daemon.session.unread import ReadingWatch
from profd.daemon.stacks.chain import OVERLAP_SAMPLES, Allowance, SamplingPace, StackChain
from profd.daemon.stacks.source import Statements
from profd.daemon.stacks.turns import Turns
from profd.daemon.store.records import EventHappened, Identity, ProcessEnded, Put, RecordingTaken
from profd.daemon.tree import exitstatus, roles
from profd.daemon.tree.roles import in_words
from profd.daemon.tree.tree import Member, ProcessTree
from profd.daemon.tree.unread import why_unread
from profd.daemon.userfiles import files_of

if TYPE_CHECKING:
    from profd.daemon.session.stepping import Stepping

CLOSING_TIMEOUT_S = 10.0
LOOK_S = 0.25
"""A shorter stop or freeze of a process may be missed; a look takes 0.1 ms."""


class Sampling:
    """The chains of recordings of all members.

    While ``is_watched``, recordings are short, so that they are seen soon.
    """

    def __init__(
        self,
        executable: str,
        governor: Governor,
        clock: Clock,
        put: Put,
        failed: Callable[[Identity, str], object] = lambda identity, words: None,
    ) -> None:
        """Start without chains; ``failed`` gets py-spy's words if no recording could be started."""
        self.is_watched, self._failed = False, failed
        self.governor, self._executable, self._clock, self._put = governor, executable, clock, put
        self._chains: dict[Identity, tuple[StackChain, asyncio.Task[None]]] = {}
        self._turns = Turns()
        self._cores = FreeCores()
        # Workers that come and go see the same files as the others: each file is read and parsed
        # once.
        self._statements = functools.lru_cache(8)(Statements)

    def begin(self, member: Member) -> None:
        if member.identity in self._chains:
            return
        source = self._statements(files_of(member.identity.pid), member.origin)
        pace, failed = partial(self._pace_of, member), partial(self._failed, member.identity)
        about = self._clock, self._put, failed, seen_in, self._allowance, self.governor.expect
        chain = StackChain(self._executable, member.identity, pace, source, *about)
        # A process that turns out to be a worker keeps its mode.
        run = (
            chain.run()
            if member.role in (roles.MAIN, roles.LAUNCHER)
            else chain.run_in_turns(self._turns)
        )
        task = asyncio.ensure_future(run)
        self._chains[member.identity] = (chain, task)
        task.add_done_callback(lambda done: self._forget(member.identity, done))

    def take_main(self, member: Member) -> None:
        """Sample a process without gaps from now on, and look at the others.

        The process has turned out to be a main one.
        """
        if member.identity in self._chains:
            self._chains[member.identity][0].leave_turns()
        for chain, _ in self._chains.values():
            if chain.is_in_turns:  # a process that was started beside it may be another rank
                chain.hurry()

    def end(self, member: Member) -> None:
        if member.identity in self._chains:
            self._chains[member.identity][0].stop()

    def keep_off_cores(self) -> None:
        """Keep each py-spy off the core of the process that it samples, if that is needed.

        Call it each second.
        """
        self._cores.look()
        for chain, _ in self._chains.values():
            chain.keep_off_core(self._cores)

    async def watch(self) -> None:
        """Check whether the processes and their py-spies run, until cancelled."""
        while True:
            for chain, _ in list(self._chains.values()):
                chain.look()
            await asyncio.sleep(until_tick_s(LOOK_S))

    def hold_rate(self) -> None:
        """Keep the rate from rising while recordings pause.

        Their cost then says nothing of the rate.
        """
        resting = [chain for chain, _ in self._chains.values() if chain.is_resting]
        self.governor.is_held = bool(resting)
        self.governor.is_promised = any(chain.is_recording for chain in resting)

    def grant(self, cpu_s: float) -> bool:
        """Return whether work other than sampling may take this much CPU now."""
        self.hold_rate()
        return self.governor.grant(cpu_s)

    def hurry(self) -> None:
        for chain, _ in self._chains.values():
            chain.hurry()

    async def close(self) -> None:
        """End all recordings and hand over what they hold.

        Those that do not end in time are aborted.
        """
        tasks = {task for _, task in self._chains.values()}
        for chain, _ in self._chains.values():
            chain.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSING_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)

    def _allowance(self) -> Allowance:
        without_gap = sum(not chain.is_in_turns for chain, _ in self._chains.values())
        return self.governor.allowance(without_gap)

    def _pace_of(self, member: Member) -> SamplingPace:
        rate_hz = self.governor.next_hz() if member.role == roles.MAIN else self.governor.rate_hz
        if member.role != roles.MAIN:
            # A helper may do all of the work of a main process that waits, the more likely the
            # fewer there are.
            part = min(max(len(self._chains) - 1, 1), 5) if member.role == roles.HELPER else 5
            # Not below the lowest rate: the hand-over waits until a recording has seen something.
            rate_hz = min(max(rate_hz // part, RECORDING.lowest_rate_hz), rate_hz)
        length_s = RECORDING.length_at(self.governor.rate_hz)
        length_s = RECORDING.watched_length_s if self.is_watched else length_s
        # However small the budget: new processes are to be seen, and stacks show which are workers.
        turn_share = max(self.governor.turn_share, 0.1)
        length_s, rest_ratio = (
            max(length_s - OVERLAP_SAMPLES / rate_hz, 0.5),
            (1 - turn_share) / turn_share,
        )
        # A helper may be a rank or a worker, which its stacks show once it has finished its
        # imports.
        return SamplingPace(rate_hz, length_s, rest_ratio, is_unknown=member.role == roles.HELPER)

    def _forget(self, identity: Identity, task: asyncio.Task[None]) -> None:
        self._chains.pop(identity, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error)
            self._put(
                EventHappened(
                    self._clock.now_ns(), EventKind.ERROR, f"sampling stopped: {error!r}", identity
                )
            )


def seen_in(pid: int) -> str:
    """Return why py-spy cannot read a process, as far as the process shows it; else an empty text.

    Blocks.
    """
    reason = why_unread(pid)
    return reason.what if reason is not None else ""


@dataclass(eq=False)
class Members:
    """Follows a tree of processes; ``put`` takes records of those that start, change and end."""

    tree: ProcessTree
    sampling: Sampling
    reading: ReadingWatch
    clock: Clock
    put: Put
    stepping: Stepping | None = None
    root_status: int | None = None
    """How the root ended, as of ``waitpid``, once that is known."""
    python_threads: dict[Identity, frozenset[int]] = field(default_factory=dict)
    """The OS thread ids of each living process, from its last recording."""

    def __post_init__(self) -> None:
        self.leaders = Leaders(self.put)

    def look(self) -> None:
        for change in self.tree.poll():
            member = change.member
            if change.kind is EventKind.ENDED:
                self._take_end(member, change.exit_status)
                continue
            self.put(self.tree.record_of(member))
            if self.stepping is not None and change.kind is EventKind.EXEC:
                self.stepping.renew(member)  # what was counted is from before the exec
            command = " ".join(member.command)[:200]
            if change.kind is EventKind.STARTED:
                place = f" ({in_words(member.placement)})" if member.placement else ""
                # Only its stacks will tell a worker of a loader from another helper.
                role = "process" if member.role == roles.HELPER else member.role
                self._say(change.kind, f"{role} {member.identity.pid}{place}: {command}", member)
            else:
                now = "became" if change.kind is EventKind.EXEC else "runs Python now:"
                self._say(change.kind, f"process {member.identity.pid} {now} {command}", member)
            # Other helpers wait for their turns.
            is_idle = member.role == roles.HELPER and roles.only_waits(member.command)
            if (
                member.python is None
                or is_idle
                or (is_profd(member.command) and member.identity != self.tree.root)
            ):
                self.sampling.end(member)
            else:
                self.sampling.begin(member)
                if self.stepping is not None:
                    self.stepping.begin(member)

    def follow_steps(self, stepping: Stepping) -> None:
        """Follow the steps of all members from now on."""
        self.stepping = stepping
        for member in self.tree.members.values():
            if member.python is not None:
                stepping.begin(member)

    def look_at_end(self) -> None:
        """Look a last time: note the ends, and start no more sampling."""
        for change in self.tree.poll():
            if change.kind is EventKind.ENDED:
                self._take_end(change.member, change.exit_status)

    def take_recording(self, recording: RecordingTaken) -> RecordingTaken:
        """Learn from a recording whether its process is read, its role and its threads.

        Return the recording with its leading thread marked. It may come after its process has
        ended.
        """
        self.reading.take(recording)
        member = self.tree.members.get(recording.identity)
        if member is not None:
            self.python_threads[recording.identity] = frozenset(
                thread.os_tid for thread in recording.threads
            )
        for changed in self.tree.take_stacks(recording.identity, recording.stacks):
            self._take_role(changed)
        trains = (
            self.leaders.knows(recording.identity) if member is None else member.role == roles.MAIN
        )
        if not trains:
            return recording
        pid = recording.identity.pid
        marked = self.leaders.marked(recording, has_main_ended=processes.shown_as(pid) != pid)
        if member is not None:
            member.leader = self.leaders.leader(recording.identity)
        return marked

    def take_ranks(self, ranks: Mapping[int, int]) -> None:
        """Learn the ranks of processes, by PID."""
        for member in self.tree.take_ranks(ranks):
            self._take_role(member)
            if member.rank is not None:
                self._say(
                    EventKind.NOTE,
                    f"pid {member.identity.pid} is rank {member.rank} by NCCL",
                    member,
                )

    def _take_role(self, member: Member) -> None:
        """Write a member whose role or rank has become known.

        Then sample it and count its steps according to its role.
        """
        self.put(self.tree.record_of(member))
        if member.role == roles.MAIN:
            self.sampling.take_main(member)
        if self.stepping is not None and member.role == roles.MAIN:
            self.stepping.begin(member)
        elif self.stepping is not None:
            self.stepping.end(member.identity)

    def _take_end(self, member: Member, status: int | None) -> None:
        self.python_threads.pop(member.identity, None)
        self.leaders.forget(member.identity)
        self.reading.end(member.identity)
        if self.stepping is not None:
            self.stepping.end(member.identity)
        code, number = exitstatus.code_and_signal(status)
        self.put(ProcessEnded(member.identity, self.clock.now_ns(), code, number))
        if member.identity != self.tree.root:
            words = exit_words(code, signal_name(number))
            self._say(EventKind.ENDED, f"{member.role} {member.identity.pid} {words}", member)
        elif status is not None:
            self.root_status = status

    def _say(self, kind: EventKind, text: str, member: Member) -> None:
        self.put(EventHappened(self.clock.now_ns(), kind, text, member.identity))
