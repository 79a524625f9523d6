"""What the files of live runs say of hangs and findings, each told once while it is new; asked again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from profd.daemon.errors import ProfdError
from profd.daemon.host.journal import Journal
from profd.daemon.host.register import Entry
from profd.daemon.host.sessions import run_file
from profd.daemon.store.entities import Entities
from profd.daemon.store.findings import findings_now
from profd.daemon.store.reader import RunReader

_HARMLESS = "info"


class Incidents:
    """The incidents that were told of the live runs."""

    def __init__(self, journal: Journal, report: Callable[[Entry], None]) -> None:
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
