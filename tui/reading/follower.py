"""Follows a run: looks at it again and again, and says when there is something new to be shown."""

from __future__ import annotations

from msgspec.structs import replace

from profd.daemon.store.reader import RunReader
from profd.tui.reading.analysis import Analysis
from profd.tui.reading.findings import Findings
from profd.tui.reading.survey import Survey
from profd.tui.snapshot import Snapshot
from profd.tui.view import View


class Follower:
    """The survey of a run, looked at again and again: does as little as can be while nothing is written."""

    def __init__(self, reader: RunReader, analysis: Analysis) -> None:
        self._reader = reader
        self._findings = Findings(reader, analysis)
        self.survey = Survey(reader)
        self._shown: tuple[View, str] | None = None
        self._has_more = True
        self._is_stale = True

    def look(self) -> bool:
        """Take in what is new; True where there is more to be read at once."""
        if self._reader.changed() or self._has_more or self.survey.has_backlog:
            self._has_more = self.survey.catch_up()
            self._is_stale = True
        elif self._reader.info.state == "live":
            # A recorder that was killed writes nothing any more: its absence has to be looked for.
            self._reader.refresh()
        # Not before something is shown.
        if not self._has_more and self._shown is not None and self._findings.renew():
            self._is_stale = True
        return self._has_more

    def snapshot(self, view: View) -> Snapshot | None:
        """Return the run as it is now, None where that is what the last snapshot said."""
        asked = (view, self._reader.info.state)
        if not self._is_stale and asked == self._shown:
            return None
        self._is_stale, self._shown = False, asked
        return replace(
            self.survey.snapshot(view),
            findings=self._findings.findings,
            is_diagnosed=self._findings.has_looked,
            is_undiagnosable=self._findings.has_failed,
        )
