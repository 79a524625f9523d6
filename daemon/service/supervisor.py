"""The loop of the service: finds jobs, has them recorded and reported, applies retention; one instance a user.

Each part is in a module of its own; this one only says what happens when.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from profd.daemon import paths
from profd.daemon.clock import Clock
from profd.daemon.errors import SessionFailed
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.exporting import Exporting, metrics_command
from profd.daemon.service.jobs import STOPPED, Jobs
from profd.daemon.service.log import JsonLog, SystemdNotifier
from profd.daemon.service.pool import SessionPool
from profd.daemon.service.processes import Rules
from profd.daemon.service.reports import Incidents, Reporter, ReportQueue
from profd.daemon.service.sessions import Sessions, run_file, why_ended
from profd.daemon.service.storage import Entry, RunRegistry, RunRetention, RunStorage
from profd.daemon.store.database import unwritable

_THIN_EVERY_S = 300.0
INCIDENTS_EVERY_S = 3.0
_STOPPING_S = 30.0


class Supervisor:
    """Supervises the host until it is told to end."""

    def __init__(
        self,
        configuration: Configuration,
        jobs: Jobs,
        sessions: Sessions,
        reporter: Reporter,
        register: RunRegistry,
        shelf: RunStorage,
        journal: JsonLog,
        clock: Clock,
    ) -> None:
        """Belongs to the running event loop."""
        self._configuration = configuration
        self._jobs = jobs
        self._register = register
        self._journal = journal
        self._clock = clock
        self._archive = RunRetention(register, shelf, journal, clock)
        self._desk = ReportQueue(reporter, register, journal, self._thin)
        self._crew = SessionPool(configuration, sessions, jobs, register, journal, clock, self._desk.ask)
        self._exporting = Exporting(journal)
        self._incidents = Incidents(journal, self._desk.ask)
        self._last_failure = ""
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End the supervision; what becomes of the sessions the configuration says."""
        self._ended.set()

    def use(self, configuration: Configuration) -> None:
        """Go by another configuration from now on; sessions that live keep their rate and the length of their run."""
        self._configuration = self._crew.configuration = configuration
        self._jobs.use(Rules(configuration))
        self._crew.share()
        self._exporting.use(metrics_command(configuration, paths.runs_folder()))

    async def run(self, notifier: SystemdNotifier, reload: Callable[[], None]) -> None:
        """Supervise until ``end`` or SIGTERM; ``reload`` is called at SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        loop.add_signal_handler(signal.SIGHUP, reload)
        self._take_over()
        self._exporting.use(metrics_command(self._configuration, paths.runs_folder()))
        beats = [(self._look_for_incidents, INCIDENTS_EVERY_S), (self._thin, _THIN_EVERY_S)]
        if notifier.watchdog_s:
            beats.append((lambda: notifier.tell("WATCHDOG=1"), notifier.watchdog_s / 2))
        endless = [self._look(), self._desk.work(), *(self._beat(what, every_s) for what, every_s in beats)]
        tasks = {asyncio.ensure_future(work) for work in endless}
        tasks.add(asyncio.ensure_future(self._wait_for_end()))
        notifier.tell("READY=1")
        self._journal.say("ready", f"looks every {self._configuration.look_every_s:g} s")
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        notifier.tell("STOPPING=1")
        await self._close(tasks)

    def _take_over(self) -> None:
        """Adopt the sessions that a supervisor before this one left, and have what it did not report reported."""
        for entry in self._register.entries():
            if entry.ended_ns:
                self._take_past(entry)
            elif not self._crew.adopt(entry):
                self._take_missed(entry)

    def _take_past(self, entry: Entry) -> None:
        if entry.why_ended == STOPPED and entry.is_of_this_boot:
            self._jobs.take([entry.root])
        if not entry.is_reported:
            self._desk.ask(entry)

    def _take_missed(self, entry: Entry) -> None:
        """Take in a run that ended while nobody supervised; one that never began is forgotten."""
        try:
            written_ns = run_file(entry.run_id).stat().st_mtime_ns
        except OSError:
            self._register.remove(entry.run_id)
            return
        why = why_ended(entry.run_id)
        self._journal.say("ended", f"{why}, while no supervisor ran", run=entry.run_id, pid=entry.root.pid)
        self._take_past(msgspec.structs.replace(entry, ended_ns=written_ns, why_ended=why))

    async def _wait_for_end(self) -> None:
        await self._ended.wait()

    async def _look(self) -> None:
        while True:
            self._crew.meter()
            self._begin_found()
            await asyncio.sleep(self._configuration.look_every_s)

    def _begin_found(self) -> None:
        """Begin what is to be recorded; a look that fails is said once, and the next one may do better."""
        failure = ""
        try:
            self._crew.begin(self._jobs.poll(self._crew.room))
            self._crew.make_room()
        except Exception as error:  # noqa: BLE001  one process may be the reason, and the others are to be recorded
            failure = f"the processes could not be looked at ({error!r})"
        if failure and failure != self._last_failure:
            self._journal.say("unlooked", failure, level="error")
        self._last_failure = failure

    @staticmethod
    async def _beat(what: Callable[[], None], every_s: float) -> None:
        while True:
            what()
            await asyncio.sleep(every_s)

    def _thin(self) -> None:
        self._archive.thin(self._configuration.retention, {*self._crew.live, *self._desk.in_work})

    def _look_for_incidents(self) -> None:
        self._incidents.look(self._crew.live)

    async def _close(self, tasks: set[asyncio.Task[None]]) -> None:
        """End in order, and raise what kept the supervision from going on."""
        done = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._exporting.close()
        with contextlib.suppress(asyncio.TimeoutError):
            if self._configuration.at_exit == "stop":
                await asyncio.wait_for(self._crew.stop_all(), _STOPPING_S)
            await asyncio.wait_for(self._crew.settle(), _STOPPING_S)
        self._journal.say("stopping", f"{len(self._crew.live)} sessions go on")
        for task in done:
            task.result()


_LOCK = "daemon.lock"


class SingleInstanceLock:
    """The lock, held until ``close`` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the lock in ``folder``; raises SessionFailed where another process holds it, and OutputUnwritable."""
        path = folder / _LOCK
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise SessionFailed(
                f"profd daemon runs already, as pid {holder} (it holds {path})", f"end that one first: kill {holder}"
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._fd)
