"""The findings that the dashboard shows, and the process that looks for them.

The process starts only if the run file has no findings. The search takes seconds in a run of a day,
and holds Python's lock meanwhile, so it runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence

import msgspec

from profd.daemon import processes
from profd.daemon.findings.catalog import (
    as_findings,
    is_whole_run_analyzed,
    present_findings,
    whole_findings,
)
from profd.daemon.findings.finding import Finding
from profd.daemon.store.bound import MemoryBound
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken


class Analysis:
    """The analyst of one run file: started with the first ``poll``, and ended by ``close``."""

    def __init__(self, words: Sequence[str], bound: MemoryBound | None = None) -> None:
        """``bound`` is the one of this process; the analyst has its own."""
        self._words, self._bound = words, bound
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""
        self._spent_s = 0.0
        self.is_given_up = False
        """Whether the process could not be started, or has died."""

    def poll(self) -> FindingsTaken | None:
        if self._process is None and not self.is_given_up:
            self._start()
        if self._process is None:
            return None
        assert self._process.stdout is not None
        part = self._process.stdout.read()
        self._output += part or b""
        *lines, self._output = self._output.split(b"\n")
        if lines:
            return msgspec.json.decode(lines[0], type=FindingsTaken)
        if part == b"":  # it has ended
            self.close()
        return None

    def _start(self) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        try:
            # In a session of its own, because signals from the terminal are for the dashboard.
            process = self._process = subprocess.Popen(
                self._words, 0, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True
            )
        except OSError:
            self.is_given_up = True
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        if self._bound is not None:
            self._bound.spare(process.pid)

    def spent_s(self) -> float:
        if self._process is not None and (stat := processes.read_stat(self._process.pid)):
            self._spent_s = stat.cpu_s
        return self._spent_s

    def close(self) -> None:
        """End the process; it is not started again."""
        self.is_given_up = True
        if self._process is not None:
            self.spent_s()
            self._process.kill()
            self._process.communicate()
            self._process = None


class Findings:
    """The findings that are known."""

    def __init__(self, reader: RunReader, analysis: Analysis) -> None:
        self._reader, self._analysis = reader, analysis
        self._shown_of: tuple[object, ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self.has_looked = False
        self.has_failed = False
        """Whether nothing looks for findings any more."""

    def renew(self) -> bool:
        """Take in what is new; True if this changed what is known.

        Raises RunUnreadable.
        """
        info = self._reader.info
        of = (info.state, info.analyzed_ns, info.analysis_lost_ns, info.findings_made_by)
        if of == self._shown_of:
            return False
        if info.is_live:
            self._shown_of = of
            has_failed = info.analysis_lost_ns is not None
            has_looked = info.analyzed_ns is not None and not has_failed
            return self._show(
                present_findings(self._reader), has_looked=has_looked, has_failed=has_failed
            )
        if is_whole_run_analyzed(self._reader):
            self._shown_of = of
            self._analysis.close()
            return self._show(whole_findings(self._reader), has_looked=True)
        taken = self._analysis.poll()
        if taken is None:
            return self._analysis.is_given_up and self._show((), has_failed=True)
        self._shown_of = of
        self._analysis.close()
        return self._show(as_findings(self._reader.path, taken.findings), has_looked=True)

    def _show(
        self, findings: Iterable[Finding], *, has_looked: bool = False, has_failed: bool = False
    ) -> bool:
        before = self.findings, self.has_looked, self.has_failed
        self.findings, self.has_looked, self.has_failed = tuple(findings), has_looked, has_failed
        return before != (self.findings, has_looked, has_failed)
