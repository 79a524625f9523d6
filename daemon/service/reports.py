"""Writes reports of runs in processes of low priority, one after the other, and logs incidents.

The service records and may not import what analyzes: it starts profd's commands, and reads their
JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from profd.daemon import program
from profd.daemon.child import PIPE, child
from profd.daemon.errors import ExitCode, ProfdError, RunUnreadable, SessionFailed
from profd.daemon.service.log import JsonLog
from profd.daemon.service.sessions import run_file
from profd.daemon.service.storage import Entry, RunRegistry, RunStorage
from profd.daemon.store.database import unwritable
from profd.daemon.store.entities import Entities
from profd.daemon.store.findings import findings_now
from profd.daemon.store.reader import RunReader

_TIMEOUT_S = 1800.0


class _Summary(msgspec.Struct, frozen=True):
    incident: str


async def write_report(storage: RunStorage, run_id: str) -> str:
    """Write ``<id>.json`` and ``<id>.html`` into the folder of reports; returns the incident.

    Raises ProfdError.
    """
    run, page = str(run_file(run_id)), str(storage.report_file(run_id, ".html"))
    summary = storage.report_file(run_id, ".json")
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
    """Return the incident in the JSON summary of a run, empty if there is none.

    Raises RunUnreadable.
    """
    try:
        return msgspec.json.decode(summary.read_bytes(), type=_Summary).incident
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunUnreadable(
            f"{summary} is no summary ({error})", "see `profd summary` of the run"
        ) from error


async def _profd(output: Path, *words: str) -> None:
    """Run a command of profd's to its end; raises SessionFailed with the end of its stderr.

    A run without samples is no failure of the command: that is what it reports.
    """
    command = program.words("profd.daemon.rights", *program.words("profd", *words))
    with output.open("wb") as stdout:
        async with child(command, stdout=stdout, stderr=PIPE) as process:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, 19)
            try:
                _, stderr = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
            except asyncio.TimeoutError:
                what = f"`profd {words[0]}` took longer than {_TIMEOUT_S:.0f} s"
                raise SessionFailed(what, "run it by hand") from None
    if process.returncode not in (0, ExitCode.NO_SAMPLES):
        reason = stderr.decode(errors="replace").strip()[-400:]
        raise SessionFailed(
            f"`profd {words[0]}` ended with {process.returncode} ({reason})", "run it by hand"
        )


@dataclass(eq=False)
class ReportQueue:
    """The queue of reports; ``written`` is called after each."""

    write_report: Callable[[str], Awaitable[str]]
    registry: RunRegistry
    log: JsonLog
    written: Callable[[], None]

    def __post_init__(self) -> None:
        self._waiting: dict[str, Entry] = {}
        self._has_work = asyncio.Event()

    @property
    def in_work(self) -> frozenset[str]:
        return frozenset(self._waiting)

    def ask(self, entry: Entry) -> None:
        """Have the report of a run written, once if it waits already."""
        self._waiting[entry.run_id] = entry
        self._has_work.set()

    async def work(self) -> None:
        while True:
            await self._has_work.wait()
            noted = entry = next(iter(self._waiting.values()))
            try:
                incident = await self.write_report(entry.run_id)
            except ProfdError as error:  # the next supervisor tries again
                self.log.complain("unreported", error, run=entry.run_id)
            else:
                level = "warning" if incident else "info"
                self.log.say(
                    "reported", incident or "nothing to worry about", level=level, run=entry.run_id
                )
                noted = msgspec.structs.replace(
                    entry, is_reported=bool(entry.ended_ns), incident=incident
                )
            if self._waiting[entry.run_id] is entry:
                del self._waiting[entry.run_id]
            # A failure was logged when the session ended; the report is there all the same.
            with contextlib.suppress(ProfdError):
                self.registry.put(noted)
            self.written()
            if not self._waiting:
                self._has_work.clear()


@dataclass(eq=False)
class Incidents:
    """Logs hangs and findings of live runs, each once.

    Has ``report`` written as soon as one hangs.
    """

    log: JsonLog
    report: Callable[[Entry], None]
    _logged: dict[str, tuple[int, frozenset[int]]] = field(default_factory=dict, init=False)
    """Of each run how many hangs, and which findings."""

    def look(self, live: Mapping[str, Entry]) -> None:
        self._logged = {run_id: logged for run_id, logged in self._logged.items() if run_id in live}
        for run_id, entry in live.items():
            try:
                with RunReader(run_file(run_id), Entities()) as reader:
                    count = len(reader.hangs())
                    findings = [one for one in findings_now(reader) if one.severity != "info"]
            except ProfdError as error:
                self.log.complain("unreadable", error, run=run_id)
                continue
            hangs, logged = self._logged.get(run_id, (0, frozenset()))
            if count > hangs:
                self.log.say(
                    "hang", "the run hangs", level="warning", run=run_id, pid=entry.root.pid
                )
                self.report(entry)
            for one in findings:
                if one.id not in logged:
                    self.log.say(
                        "finding", one.title, level="warning", run=run_id, pid=entry.root.pid
                    )
            self._logged[run_id] = count, logged.union(one.id for one in findings)
