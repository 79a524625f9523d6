"""Writes reports of runs in processes of low priority, one after the other, and passes on incidents.

What records never imports what judges: this side starts those commands, and reads the JSON that they promise.

Lives in the supervisor's event loop. What a report tells is noted in the register.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from profd.daemon.errors import ProfdError, RunUnreadable, SessionFailed
from profd.daemon.service.log import JsonLog
from profd.daemon.service.sessions import run_file
from profd.daemon.service.storage import Entry, RunRegistry, RunStorage
from profd.daemon.store.database import unwritable
from profd.daemon.store.entities import Entities
from profd.daemon.store.findings import findings_now
from profd.daemon.store.reader import RunReader

_LOWEST_PRIORITY = 19
_TIMEOUT_S = 1800.0
_TOLD = 400


class _Summary(msgspec.Struct, frozen=True):
    incident: str


class Reporter(Protocol):
    """What the supervisor asks of whoever writes reports."""

    async def report(self, run_id: str) -> str:
        """Write the report of a run, and return its incident; raises ProfdError."""
        ...


class CommandReporter:
    """Writes ``<id>.json`` and ``<id>.html`` into the folder of reports."""

    def __init__(self, shelf: RunStorage) -> None:
        self._shelf = shelf

    async def report(self, run_id: str) -> str:
        """Write the report of a run, and return its incident; raises ProfdError."""
        run, page = str(run_file(run_id)), str(self._shelf.report_file(run_id, ".html"))
        summary = self._shelf.report_file(run_id, ".json")
        beside = summary.with_suffix(".new")
        try:
            await _profd(beside, "summary", run, "--json")
            await _profd(Path(os.devnull), "report", run, "-o", page)
            incident = read_incident(beside)
            beside.replace(summary)
        except OSError as error:
            raise unwritable(summary, error) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return incident


def read_incident(summary: Path) -> str:
    """Return the incident that the summary of a run tells, else nothing; raises RunUnreadable where it is none."""
    try:
        return msgspec.json.decode(summary.read_bytes(), type=_Summary).incident
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunUnreadable(f"{summary} is no summary ({error})", "see `profd summary` of the run") from error


async def _profd(output: Path, *words: str) -> None:
    """Run a command of profd's to its end; raises SessionFailed with what it said where it fails."""
    with output.open("wb") as stdout:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "profd.daemon.rights", sys.executable, "-m", "profd", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST_PRIORITY)
    try:
        _, said = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except asyncio.TimeoutError:
        raise SessionFailed(f"`profd {words[0]}` took longer than {_TIMEOUT_S:.0f} s", "run it by hand") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SessionFailed(
            f"`profd {words[0]}` ended with {process.returncode} ({said.decode(errors='replace').strip()[-_TOLD:]})",
            "run it by hand",
        )


class ReportQueue:
    """The queue of reports; ``written`` is called after each."""

    def __init__(
        self, reporter: Reporter, register: RunRegistry, journal: JsonLog, written: Callable[[], None]
    ) -> None:
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


_HARMLESS = "info"


class Incidents:
    """The incidents that were told of the live runs."""

    def __init__(self, journal: JsonLog, report: Callable[[Entry], None]) -> None:
        """Have the report of a run written by ``report`` as soon as it hangs: nobody may end it before the morning."""
        self._journal = journal
        self._report = report
        self._hangs: dict[str, int] = {}
        self._findings: dict[str, frozenset[int]] = {}

    def look(self, live: Mapping[str, Entry]) -> None:
        """Tell what is new in the live runs, by their ids."""
        self._hangs = {run_id: count for run_id, count in self._hangs.items() if run_id in live}
        self._findings = {run_id: ids for run_id, ids in self._findings.items() if run_id in live}
        for run_id, entry in live.items():
            try:
                with RunReader(run_file(run_id), Entities()) as reader:
                    self._tell_hangs(reader, entry)
                    self._tell_findings(reader, entry)
            except ProfdError as error:
                self._journal.complain("unreadable", error, run=run_id)

    def _tell_hangs(self, reader: RunReader, entry: Entry) -> None:
        count = reader.hang_count().count
        if count > self._hangs.get(entry.run_id, 0):
            self._journal.say("hang", "the run hangs", level="warning", run=entry.run_id, pid=entry.root.pid)
            self._report(entry)
        self._hangs[entry.run_id] = count

    def _tell_findings(self, reader: RunReader, entry: Entry) -> None:
        held = [one for one in findings_now(reader) if one.severity != _HARMLESS]
        told = self._findings.get(entry.run_id, frozenset())
        for one in held:
            if one.id not in told:
                self._journal.say("finding", one.title, level="warning", run=entry.run_id, pid=entry.root.pid)
        self._findings[entry.run_id] = told.union(one.id for one in held)
