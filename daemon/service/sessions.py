"""The live sessions of the host: started, adopted and ended, each with its part of the budget.

They are ordinary ones, as ``profd attach`` starts them, each a process of its own. They outlive the
supervisor that started them; the next one adopts them by the registry. The pool lives in the
supervisor's event loop; calls that may take seconds run in threads.

A session keeps to its part of the budget, but does not know what others spent before it: ten short
jobs in a row are ten starts in one minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from profd.daemon import paths, processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.errors import NoSuchProcess, ProfdError, SessionFailed
from profd.daemon.naming import script_name
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.jobs import QUIET, STOPPED, Jobs
from profd.daemon.service.log import JsonLog
from profd.daemon.service.scanner import HostJob
from profd.daemon.service.storage import Entry, RunRegistry, boot_id
from profd.daemon.session.budget import MINUTE_S, Ledger, Spending
from profd.daemon.session.control import ControlClient
from profd.daemon.session.session import (
    RunningSession,
    SessionOptions,
    end_session,
    is_session,
    start_session,
)
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity
from profd.daemon.tree.attachable import ThriftySystem, check_attachable
from profd.daemon.tree.exitstatus import ProcessWatch

INTERRUPTED = "interrupted"
Value = TypeVar("Value")


@dataclass(eq=False)
class LiveSession:
    """A live session; ``watch`` becomes readable when its process ends."""

    entry: Entry
    watch: ProcessWatch
    control_socket: Path
    session: RunningSession | None = None  # None if another supervisor started it
    budget_percent: float = 0.0
    """Its part of the host's budget, as it last heard.

    0 if it heard none from this supervisor.
    """
    cpu_s: float = 0.0  # CPU seconds at the last reading
    is_released: bool = False  # whether it ends because its job is quiet and another one waits


class Sessions:
    """Sessions of this user on this host.

    Each method but ``cpu_s`` may take seconds, and is called in a thread.
    """

    def __init__(self, configuration: Configuration, registry: RunRegistry) -> None:
        self.configuration, self._registry = configuration, registry

    def start(self, job: HostJob, budget_percent: float) -> LiveSession:
        """Start recording a job, and return once it is recorded; raises ProfdError."""
        check_attachable(job.root.pid, ThriftySystem())
        if not processes.is_running(*job.root):
            raise NoSuchProcess(
                f"pid {job.root.pid} ended while it was looked at", "nothing was recorded"
            )
        wanted, name = self.configuration, paths.clean_name(script_name(job.command))
        run_id = paths.new_run_id(name)
        options = SessionOptions(
            run_id=run_id,
            name=name,
            run_file=paths.new_run_file(run_id),
            mode="attached",
            pid=job.root.pid,
            start_ticks=job.root.start_ticks,
            command=job.command,
            rate_hz=wanted.rate_hz,
            budget_percent=budget_percent,
            duration_s=wanted.slice_hours * 3600,
            hang_after_s=wanted.hang_after_s or None,
            on_hang=wanted.on_hang or None,
            nccl_ras=wanted.nccl_ras,
        )
        entry = Entry(run_id, job.root, job.member, job.rule, boot_id())
        self._registry.put(entry)
        try:
            session = start_session(options)
            return LiveSession(entry, _watch(session.pid), session.control_socket, session)
        except (ProfdError, OSError) as error:
            self._registry.remove(run_id)
            if isinstance(error, ProfdError):
                raise
            raise SessionFailed(
                f"the session of pid {job.root.pid} is gone ({error})", "see `profd ls`"
            ) from error

    def adopt(self, entry: Entry) -> LiveSession | None:
        pid = _find_session(entry.run_id)
        if not entry.is_of_this_boot or pid is None:
            return None
        try:
            return LiveSession(entry, _watch(pid), paths.runtime_folder() / f"{entry.run_id}.sock")
        except OSError:
            return None  # it has ended while it was looked at

    def allow(self, recording: LiveSession, budget_percent: float) -> None:
        with contextlib.closing(ControlClient(recording.control_socket)) as client:
            client.aim_at_budget(budget_percent)

    def cpu_s(self, recording: LiveSession) -> float:
        """Return the CPU seconds of a session and its recordings so far; at once, in no thread."""
        pid = recording.watch.identity.pid
        stats = processes.read_stats([pid, *processes.children(pid, of_all_threads=False)])
        ticks = sum(stat.cpu_ticks + stat.ended_children_ticks for stat in stats)
        return ticks / processes.CLOCK_TICKS

    def stop(self, recording: LiveSession) -> None:
        with contextlib.suppress(ProcessLookupError):
            end_session(recording.watch.identity).close()

    def close(self, recording: LiveSession) -> str:
        """Let go of a session that has ended, and return why it did.

        The reason is as ``Entry.why_ended`` has it.
        """
        recording.watch.close()
        if recording.session is not None:
            recording.session.wait_closed(5.0)
        return why_ended(recording.entry.run_id)


def run_file(run_id: str) -> Path:
    """Return the file of a run that the supervisor began."""
    return paths.runs_folder() / f"{run_id}{paths.SUFFIX}"


def why_ended(run_id: str) -> str:
    """Return why a run ended; ``interrupted`` if its file does not say why."""
    try:
        with RunReader(run_file(run_id)) as reader:
            return reader.info.why_ended or INTERRUPTED
    except ProfdError:
        return INTERRUPTED


def _watch(pid: int) -> ProcessWatch:
    """Watch a session; raises ProcessLookupError if it has ended."""
    return ProcessWatch(Identity(pid, processes.start_ticks(pid)))


def _find_session(run_id: str) -> int | None:
    """Return the PID of the living session of a run: the one whose stderr is the run's log."""
    # That is so from the first moment of a session, when there is no run file yet, to its last.
    log = str((paths.runtime_folder() / f"{run_id}.log").resolve())
    own = (pid for pid in processes.pids() if processes.owner_uid(pid) == os.geteuid())
    its = (pid for pid in own if processes.link(pid, "fd/2").removesuffix(" (deleted)") == log)
    return next(filter(is_session, its), None)


START_S = 0.8
"""CPU seconds that it takes to begin a recording, until its session measures itself.

The interpreter and py-spy take them.
"""


class HostBudget:
    """The ledger of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._last_ns = clock.now_ns()
        self._ledger = Ledger()

    def spend(self, cpu_s: float) -> None:
        now_ns = self.clock.now_ns()
        self._ledger.add(Spending(cpu_s, max(now_ns - self._last_ns, 1) / SECOND_NS))
        self._last_ns = now_ns

    def starts(self, budget_percent: float) -> int:
        """Return how many recordings may begin now without the minute passing the budget."""
        return max(
            int((MINUTE_S * budget_percent / 100 - self._ledger.spent_s(MINUTE_S)) / START_S), 0
        )

    def part(self, budget_percent: float, least_percent: float, sessions: int) -> float:
        """Return what each of ``sessions`` may cost from now on, in percent of a core.

        Together they leave what the next start takes: a short job would be over before they do.
        """
        shared = max(budget_percent - 100 * START_S / MINUTE_S, 0.0)
        allowed = min(100 * self._ledger.allowance(shared / 100), shared)
        return max(allowed / max(sessions, 1), min(least_percent, budget_percent))


@dataclass(eq=False)
class SessionPool:
    """The sessions that live; ``ended`` is called with the entry of each one that has ended."""

    configuration: Configuration
    sessions: Sessions
    jobs: Jobs
    registry: RunRegistry
    log: JsonLog
    clock: Clock
    ended: Callable[[Entry], None]

    def __post_init__(self) -> None:
        self._live: dict[str, LiveSession] = {}
        self._ended_cpu_s = 0.0  # CPU seconds of sessions that ended since the last meter
        self._budget = HostBudget(self.clock)
        self._starting = 0
        self._sharing = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "profd-jobs")  # all that ``jobs`` is asked, in order
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_less = asyncio.Event()

    @property
    def room(self) -> int:
        starts = self._budget.starts(self.configuration.budget_percent)
        return min(self.configuration.most_sessions - len(self._live), starts) - self._starting

    @property
    def live(self) -> dict[str, Entry]:
        return {run_id: recording.entry for run_id, recording in self._live.items()}

    def begin(self, jobs: list[HostJob]) -> None:
        self._starting += len(jobs)
        for job in jobs:
            self._go(self._begin(job))

    def adopt(self, entry: Entry) -> bool:
        """Take over the session of an entry; False if it lives no more."""
        recording = self.sessions.adopt(entry)
        if recording is None:
            return False
        self.jobs.adopt(entry.root)
        # Its cost before is past and unknown here.
        recording.cpu_s = self.sessions.cpu_s(recording)
        self._follow(recording)
        self.log.say("adopted", "its session goes on", run=entry.run_id, pid=entry.root.pid)
        self.share()
        return True

    def meter(self) -> None:
        self._budget.spend(self._ended_cpu_s + sum(map(self._spent_s, self._live.values())))
        self._ended_cpu_s = 0.0
        self.share()

    async def look(self) -> None:
        """Begin the sessions that are due; let a job go that is quiet for long if another waits."""
        self.begin(await self._ask(self.jobs.poll, self.room))
        await self.make_room()

    async def make_room(self) -> None:
        """Let one job go that has been quiet for long, if another one waits for its place."""
        if not self.jobs.is_any_waiting or any(
            recording.is_released for recording in self._live.values()
        ):
            return
        root = await self._ask(self.jobs.quietest)
        for run_id, recording in self._live.items():
            if recording.entry.root == root:
                recording.is_released = True
                self.log.say(
                    "released", "it has been quiet, and another job waits", run=run_id, pid=root.pid
                )
                self._go(self._stop(recording))

    def share(self) -> None:
        self._go(self._share())

    async def stop_all(self) -> None:
        for recording in list(self._live.values()):
            await self._stop(recording)
        while self._live:
            self._one_less.clear()
            await self._one_less.wait()

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, question: Callable[..., Value], *words: object) -> Value:
        """Ask ``jobs`` in its thread: it reads processes, which may take seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, *words)

    def _part(self) -> float:
        wanted = self.configuration
        return self._budget.part(
            wanted.budget_percent, wanted.least_percent, len(self._live) + self._starting
        )

    async def _begin(self, job: HostJob) -> None:
        # Room is made before it is taken: the budget holds at any time.
        await self._share()
        part = self._part()
        try:
            recording = await asyncio.to_thread(self.sessions.start, job, part)
        except ProfdError as error:
            await self._ask(self.jobs.fail, job.root)
            if await self._ask(self.jobs.is_first_notice, job.root):
                self.log.complain("refused", error, pid=job.root.pid)
        else:
            recording.budget_percent = part
            self._follow(recording)
            rule = f"by rule {job.rule or 'without a name'}"
            self.log.say("recording", rule, run=recording.entry.run_id, pid=job.root.pid)
        finally:
            self._starting -= 1
        await self._share()

    async def _stop(self, recording: LiveSession) -> None:
        try:
            await asyncio.to_thread(self.sessions.stop, recording)
        except ProfdError as error:
            recording.is_released = False
            self.log.complain("unreachable", error, run=recording.entry.run_id)

    async def _share(self) -> None:
        async with self._sharing:
            part = self._part()
            # One whose part changed each second would never settle.
            changed = [
                one for one in self._live.values() if abs(one.budget_percent - part) > 0.1 * part
            ]
            await asyncio.gather(*(self._allow(recording, part) for recording in changed))

    async def _allow(self, recording: LiveSession, part: float) -> None:
        try:
            await asyncio.to_thread(self.sessions.allow, recording, part)
        except ProfdError as error:
            # One that is about to end no longer answers; its end is logged in a moment.
            self.log.complain("unreachable", error, run=recording.entry.run_id)
        else:
            recording.budget_percent = part

    def _spent_s(self, recording: LiveSession) -> float:
        before_s, recording.cpu_s = (
            recording.cpu_s,
            max(self.sessions.cpu_s(recording), recording.cpu_s),
        )
        return recording.cpu_s - before_s

    def _follow(self, recording: LiveSession) -> None:
        self._live[recording.entry.run_id] = recording
        asyncio.get_running_loop().add_reader(recording.watch.fileno(), self._take_end, recording)

    def _take_end(self, recording: LiveSession) -> None:
        asyncio.get_running_loop().remove_reader(recording.watch.fileno())
        self._ended_cpu_s += self._spent_s(recording)
        self._go(self._end(recording))

    async def _end(self, recording: LiveSession) -> None:
        run_id, root = recording.entry.run_id, recording.entry.root
        why = await asyncio.to_thread(self.sessions.close, recording)
        if recording.is_released and why == STOPPED:
            why = QUIET
        entry = msgspec.structs.replace(
            recording.entry, ended_ns=self.clock.now_ns(), why_ended=why
        )
        del self._live[run_id]
        self._one_less.set()
        try:
            self.registry.put(entry)
        except ProfdError as error:
            self.log.complain("unwritable", error, run=run_id)
        self.log.say("ended", why, run=run_id, pid=root.pid)
        await self._ask(self.jobs.end, root, why)
        self.ended(entry)
        await self._share()
