"""The reports that are to be written, one after the other: of runs that have ended, and of live ones that hang.

Lives in the supervisor's event loop. What a report tells is noted in the register.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from profd.daemon.errors import ProfdError
from profd.daemon.host.journal import Journal
from profd.daemon.host.register import Entry, Register
from profd.daemon.host.reporting import Reporter


class Desk:
    """The queue of reports; ``written`` is called after each."""

    def __init__(self, reporter: Reporter, register: Register, journal: Journal, written: Callable[[], None]) -> None:
        self._reporter = reporter
        self._register = register
        self._journal = journal
        self._written = written
        self._waiting: dict[str, Entry] = {}
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def in_work(self) -> frozenset[str]:
        """The ids of the runs whose report is written now, or still to be written."""
        return frozenset(self._waiting)

    def ask(self, entry: Entry) -> None:
        """Have the report of a run written; one that waits already is written once, of what is known last."""
        self._waiting[entry.run_id] = entry
        self._is_idle.clear()
        self._has_work.set()

    async def work(self) -> None:
        """Write reports until cancelled."""
        while True:
            await self._has_work.wait()
            entry = next(iter(self._waiting.values()))
            noted = await self._write(entry)
            if self._waiting[entry.run_id] is entry:
                del self._waiting[entry.run_id]
            with contextlib.suppress(ProfdError):  # told when the session ended; the report is there all the same
                self._register.put(noted)
            self._written()
            if not self._waiting:
                self._has_work.clear()
                self._is_idle.set()

    async def until_idle(self) -> None:
        """Wait until every report is written."""
        await self._is_idle.wait()

    async def _write(self, entry: Entry) -> Entry:
        """Write a report, and return the entry with what it tells."""
        try:
            incident = await self._reporter.report(entry.run_id)
        except ProfdError as error:
            self._journal.complain("unreported", error, run=entry.run_id)
            return entry  # the next supervisor tries again
        level = "warning" if incident else "info"
        self._journal.say("reported", incident or "nothing to worry about", level=level, run=entry.run_id)
        return msgspec.structs.replace(entry, is_reported=bool(entry.ended_ns), incident=incident)
