"""The live sessions of the host: started, adopted and ended, each with its part of the budget.

Lives in the supervisor's event loop; what may take seconds runs in threads. Knows nothing of rules and reports.

Sessions hold themselves to the part that they are given. What they cannot know is what others spent before them: ten
short jobs, one after the other, are ten starts in one minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import ProfdError
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.jobs import QUIET, STOPPED, Jobs
from profd.daemon.service.log import JsonLog
from profd.daemon.service.processes import Job
from profd.daemon.service.sessions import Recording, Sessions
from profd.daemon.service.storage import Entry, RunRegistry
from profd.daemon.session.budget import MINUTE_S, Ledger, Spending

START_S = 0.8
"""CPU seconds that it takes to begin a recording, until its session has measured itself: interpreter and py-spy."""


class HostBudget:
    """The ledger of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ns = clock.now_ns()
        self._ledger = Ledger()

    def take(self, cpu_s: float) -> None:
        """Take in the CPU seconds that were spent since the last call."""
        now_ns = self._clock.now_ns()
        self._ledger.add(Spending(cpu_s, max(now_ns - self._last_ns, 1) / SECOND_NS))
        self._last_ns = now_ns

    def starts(self, budget_percent: float) -> int:
        """Return how many recordings may begin now without the minute passing the budget."""
        return max(int((MINUTE_S * budget_percent / 100 - self._ledger.spent_s(MINUTE_S)) / START_S), 0)

    def part(self, budget_percent: float, least_percent: float, sessions: int) -> float:
        """Return what each of so many sessions may cost from now on, in percent of a core."""
        allowed = min(100 * self._ledger.allowance(budget_percent / 100), budget_percent)
        return max(allowed / max(sessions, 1), min(least_percent, budget_percent))


_LEAST_CHANGE = 0.1
"""Of its part: a session that is told something new each second would never settle."""


class SessionPool:
    """The sessions that live; ``ended`` is called with the entry of each one that has ended."""

    def __init__(
        self,
        configuration: Configuration,
        sessions: Sessions,
        jobs: Jobs,
        register: RunRegistry,
        journal: JsonLog,
        clock: Clock,
        ended: Callable[[Entry], None],
    ) -> None:
        self.configuration = configuration
        self._sessions = sessions
        self._jobs = jobs
        self._register = register
        self._journal = journal
        self._clock = clock
        self._ended = ended
        self._live: dict[str, Recording] = {}
        self._released: set[str] = set()
        self._parts: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}
        self._unread_s = 0.0
        self._purse = HostBudget(clock)
        self._starting = 0
        self._sharing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_less = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more sessions the budget has room for now."""
        starts = self._purse.starts(self.configuration.budget_percent)
        return min(self.configuration.most_sessions - len(self._live), starts) - self._starting

    @property
    def live(self) -> dict[str, Entry]:
        """The entries of the runs that are being recorded, by their ids."""
        return {run_id: recording.entry for run_id, recording in self._live.items()}

    def begin(self, jobs: list[Job]) -> None:
        """Have these jobs recorded from now on."""
        self._starting += len(jobs)
        for job in jobs:
            self._go(self._begin(job))

    def adopt(self, entry: Entry) -> bool:
        """Take over the session of an entry; False where it lives no more."""
        recording = self._sessions.adopt(entry)
        if recording is None:
            return False
        self._jobs.adopt(entry.root)
        # What it cost before is past, and known to nobody here.
        self._cpu_s[entry.run_id] = self._sessions.cpu_s(recording)
        self._follow(recording)
        self._journal.say("adopted", "its session goes on", run=entry.run_id, pid=entry.root.pid)
        self.share()
        return True

    def meter(self) -> None:
        """Read what the sessions have cost since the last call, and tell them where that changes their parts."""
        self._purse.take(self._unread_s + sum(map(self._spent_s, self._live.values())))
        self._unread_s = 0.0
        self.share()

    def make_room(self) -> None:
        """Let a job go that has been quiet for long, where another one waits for its place; one at a time."""
        root = self._jobs.quietest() if self._jobs.is_any_waiting and not self._released else None
        for run_id, recording in self._live.items():
            if recording.entry.root == root:
                self._released.add(run_id)
                self._journal.say("released", "it has been quiet, and another job waits", run=run_id, pid=root.pid)
                self._go(self._let_go(recording))

    def share(self) -> None:
        """Tell each session its part of the budget, where that has changed."""
        self._go(self._share())

    async def stop_all(self) -> None:
        """Ask every session to end, and wait until they have."""
        for run_id, recording in list(self._live.items()):
            try:
                await asyncio.to_thread(self._sessions.stop, recording)
            except ProfdError as error:
                self._journal.complain("unreachable", error, run=run_id)
        while self._live:
            self._one_less.clear()
            await self._one_less.wait()

    async def settle(self) -> None:
        """Wait for what is under way: sessions that start, end, or are told something."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _part(self) -> float:
        wanted = self.configuration
        return self._purse.part(wanted.budget_percent, wanted.least_percent, len(self._live) + self._starting)

    async def _begin(self, job: Job) -> None:
        # Room is made before it is taken: the budget holds at any time.
        await self._share()
        part = self._part
        try:
            recording = await asyncio.to_thread(self._sessions.start, job, part)
        except ProfdError as error:
            self._jobs.fail(job)
            if not self._jobs.has_told(job):
                self._journal.complain("refused", error, pid=job.root.pid)
        else:
            self._parts[recording.entry.run_id] = part
            self._follow(recording)
            self._journal.say(
                "recording", f"by rule {job.rule or 'without a name'}", run=recording.entry.run_id, pid=job.root.pid
            )
        finally:
            self._starting -= 1
        await self._share()

    async def _let_go(self, recording: Recording) -> None:
        try:
            await asyncio.to_thread(self._sessions.stop, recording)
        except ProfdError as error:
            self._released.discard(recording.entry.run_id)
            self._journal.complain("unreachable", error, run=recording.entry.run_id)

    async def _share(self) -> None:
        async with self._sharing:
            part = self._part
            changed = [one for one in self._live.values() if self._is_news(one, part)]
            await asyncio.gather(*(self._allow(recording, part) for recording in changed))

    def _is_news(self, recording: Recording, part: float) -> bool:
        known = self._parts.get(recording.entry.run_id, 0.0)
        return abs(known - part) > _LEAST_CHANGE * part

    def _spent_s(self, recording: Recording) -> float:
        """Return the CPU seconds of a session since this was last asked."""
        run_id = recording.entry.run_id
        before_s = self._cpu_s.get(run_id, 0.0)
        self._cpu_s[run_id] = max(self._sessions.cpu_s(recording), before_s)
        return self._cpu_s[run_id] - before_s

    async def _allow(self, recording: Recording, part: float) -> None:
        run_id = recording.entry.run_id
        try:
            await asyncio.to_thread(self._sessions.allow, recording, part)
        except ProfdError as error:
            # One that is about to end hears no more: that it has ended is said in a moment.
            self._journal.complain("unreachable", error, run=run_id)
        else:
            self._parts[run_id] = part

    def _follow(self, recording: Recording) -> None:
        self._live[recording.entry.run_id] = recording
        asyncio.get_running_loop().add_reader(recording.watch.fileno(), self._take_end, recording)

    def _take_end(self, recording: Recording) -> None:
        asyncio.get_running_loop().remove_reader(recording.watch.fileno())
        self._unread_s += self._spent_s(recording)
        self._go(self._end(recording))

    async def _end(self, recording: Recording) -> None:
        run_id, job = recording.entry.run_id, recording.job
        why = await asyncio.to_thread(self._sessions.close, recording)
        if run_id in self._released:
            self._released.discard(run_id)
            why = QUIET if why == STOPPED else why
        entry = msgspec.structs.replace(recording.entry, ended_ns=self._clock.now_ns(), why_ended=why)
        del self._live[run_id]
        self._one_less.set()
        self._parts.pop(run_id, None)
        self._cpu_s.pop(run_id, None)
        try:
            self._register.put(entry)
        except ProfdError as error:
            self._journal.complain("unwritable", error, run=run_id)
        self._journal.say("ended", why, run=run_id, pid=job.root.pid)
        self._jobs.end(job, why)
        self._ended(entry)
        await self._share()
