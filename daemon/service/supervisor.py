"""The loop of the service: finds jobs, has them recorded and reported, applies retention.

One instance a user.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from profd.daemon import paths
from profd.daemon.clock import Clock
from profd.daemon.errors import SessionFailed
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.exporting import Exporting, metrics_command
from profd.daemon.service.jobs import STOPPED, Jobs
from profd.daemon.service.log import JsonLog, SystemdNotifier
from profd.daemon.service.reports import Incidents, ReportQueue
from profd.daemon.service.sessions import SessionPool, Sessions, run_file, why_ended
from profd.daemon.service.storage import RunRegistry, RunRetention, RunStorage
from profd.daemon.session.session import CLOSING_S
from profd.daemon.store.database import unwritable

INCIDENTS_EVERY_S = 3.0


@dataclass(eq=False)
class Supervisor:
    """Supervises the host, in the event loop that runs when it is made."""

    configuration: Configuration
    jobs: Jobs
    sessions: Sessions
    write_report: Callable[[str], Awaitable[str]]
    registry: RunRegistry
    storage: RunStorage
    log: JsonLog
    clock: Clock

    def __post_init__(self) -> None:
        self._retention = RunRetention(self.registry, self.storage, self.log, self.clock)
        self._reports = ReportQueue(
            self.write_report, self.registry, self.log, self._apply_retention
        )
        kept = self.registry, self.log, self.clock
        self._pool = SessionPool(
            self.configuration, self.sessions, self.jobs, *kept, self._reports.ask
        )
        self._exporting = Exporting(self.log)
        self._incidents = Incidents(self.log, self._reports.ask)
        self._ended = asyncio.Event()

    def end(self) -> None:
        self._ended.set()

    def use(self, configuration: Configuration) -> None:
        """Go by another configuration from now on.

        Sessions that live keep their rate and the length of their run.
        """
        self.configuration = self._pool.configuration = configuration
        self.sessions.configuration = self.jobs.configuration = configuration
        self._pool.share()
        self._exporting.use(metrics_command(configuration, paths.runs_folder()))

    async def run(self, notifier: SystemdNotifier, reload: Callable[[], None]) -> None:
        """Supervise until ``end`` or SIGTERM; ``reload`` is called at SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        loop.add_signal_handler(signal.SIGHUP, reload)
        self._take_over()
        self._exporting.use(metrics_command(self.configuration, paths.runs_folder()))
        works = [
            self._look(),
            self._reports.work(),
            self._beat(self._apply_retention, 300.0),
            self._ended.wait(),
            self._beat(lambda: self._incidents.look(self._pool.live), INCIDENTS_EVERY_S),
        ]
        if notifier.watchdog_s:
            works.append(self._beat(lambda: notifier.tell("WATCHDOG=1"), notifier.watchdog_s / 2))
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(work) for work in works]
        notifier.tell("READY=1")
        self.log.say("ready", f"looks every {self.configuration.look_every_s:g} s")
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        notifier.tell("STOPPING=1")
        await self._close(tasks)

    def _take_over(self) -> None:
        """Adopt the sessions of the supervisor before this one.

        Ask for the reports that it did not write.
        """
        # A run that ended meanwhile is noted; one that never began is forgotten.
        for entry in self.registry.entries():
            if not entry.ended_ns:
                if self._pool.adopt(entry):
                    continue
                try:
                    written_ns = run_file(entry.run_id).stat().st_mtime_ns
                except OSError:
                    self.registry.remove(entry.run_id)
                    continue
                why = why_ended(entry.run_id)
                self.log.say(
                    "ended", f"{why}, while no supervisor ran", run=entry.run_id, pid=entry.root.pid
                )
                entry = msgspec.structs.replace(entry, ended_ns=written_ns, why_ended=why)
            if entry.why_ended == STOPPED and entry.is_of_this_boot:
                self.jobs.skip(entry.root)
            if not entry.is_reported:
                self._reports.ask(entry)

    async def _look(self) -> None:
        """Begin the sessions that are due.

        A look that fails is logged once, and the next one may do better.
        """
        last_failure = ""
        while True:
            self._pool.meter()
            try:
                await self._pool.look()
            except Exception as error:  # noqa: BLE001  one process must not keep others unrecorded
                failure = f"the processes could not be looked at ({error!r})"
                if failure != last_failure:
                    self.log.say("unlooked", failure, level="error")
                last_failure = failure
            else:
                last_failure = ""
            await asyncio.sleep(self.configuration.look_every_s)

    @staticmethod
    async def _beat(what: Callable[[], None], every_s: float) -> None:
        while True:
            what()
            await asyncio.sleep(every_s)

    def _apply_retention(self) -> None:
        self._retention.apply(
            self.configuration.retention, {*self._pool.live, *self._reports.in_work}
        )

    async def _close(self, tasks: list[asyncio.Future[Any]]) -> None:
        """End in order, and raise what kept the supervision from going on."""
        done = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._exporting.close()
        with contextlib.suppress(asyncio.TimeoutError):
            if self.configuration.at_exit == "stop":
                await asyncio.wait_for(self._pool.stop_all(), CLOSING_S)
            await asyncio.wait_for(self._pool.settle(), CLOSING_S)
        self.log.say("stopping", f"{len(self._pool.live)} sessions go on")
        for task in done:
            task.result()


class SingleInstanceLock:
    """The lock, held until ``close`` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Take the lock in ``folder``.

        Raises SessionFailed if another process holds it, and OutputUnwritable.
        """
        path = folder / "daemon.lock"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            what = f"profd daemon runs already, as pid {holder} (it holds {path})"
            raise SessionFailed(what, f"end that one first: kill {holder}") from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, b"%d\n" % os.getpid())

    def close(self) -> None:
        os.close(self._fd)
