"""What slows the run: now while it is live, all in all once it has ended. Belongs to the feed's thread.

Its file says so. Where it does not, the analyst looks for this dashboard alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.stored import as_findings, is_whole_run_analyzed, present_findings, whole_findings
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.store.reader import RunReader
from profd.tui.reading.analysis import Analysis


class Findings:
    """The findings that are known."""

    def __init__(self, reader: RunReader, analysis: Analysis) -> None:
        self._reader = reader
        self._analysis = analysis
        self._shown_of: tuple[object, ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self.has_looked = False
        self.has_failed = False
        """Whether nothing looks any more."""

    def renew(self) -> bool:
        """Take in what is new; True where other things are known than before. Raises RunUnreadable."""
        info = self._reader.info
        is_live = info.state == "live"
        of = (info.state, info.analyzed_ns, info.analysis_lost_ns, info.findings_made_by)
        if of == self._shown_of:
            return False
        if is_live and self._reader.has_table("finding"):
            self._shown_of = of
            has_failed = info.analysis_lost_ns is not None
            has_looked = info.analyzed_ns is not None and not has_failed
            return self._show(present_findings(self._reader), has_looked=has_looked, has_failed=has_failed)
        if not is_live and is_whole_run_analyzed(self._reader, self._phases):
            self._shown_of = of
            self._analysis.close()
            return self._show(whole_findings(self._reader), has_looked=True)
        taken = self._analysis.poll()
        if taken is None:
            return self._analysis.is_given_up and self._show((), has_looked=False, has_failed=True)
        if not is_live and taken.made_by is None:  # it is still at the last part of the run
            return False
        if not is_live:
            self._shown_of = of
            self._analysis.close()
        return self._show(as_findings(self._reader.path, taken.findings), has_looked=True)

    @cached_property
    def _phases(self) -> PhaseIndex:
        return PhaseIndex(self._reader)

    def _show(self, findings: Iterable[Finding], *, has_looked: bool, has_failed: bool = False) -> bool:
        before = self.findings, self.has_looked, self.has_failed
        self.findings, self.has_looked, self.has_failed = tuple(findings), has_looked, has_failed
        return before != (self.findings, has_looked, has_failed)
