"""The findings while the run goes on: over its last part while it is live, over all of it once it has ended.

Belongs to the feed's thread. What is slow now is to be seen soon and to be gone soon after it has ended, so the part is
short; and looking for it must not take much of anyone's time, so it is done the more seldom the longer it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from profd.daemon.analyze.findings.catalog import find
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

RECENT_NS = 45 * SECOND_NS
EVERY_S = 5.0

_REST = 49
"""For how many times what a look took the next one is put off: it may take a fiftieth of a core."""


class Diagnosis:
    """What was found when it was last looked for."""

    def __init__(self, reader: RunReader, phases: PhaseIndex, now_s: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._phases = phases
        self._now_s = now_s
        self._rests_until_s = 0.0
        self._looked_at: tuple[str, int] | None = None
        self.findings: tuple[Finding, ...] = ()

    def renew(self) -> bool:
        """Look again where there is something new and it is time to; True where other things were found."""
        info = self._reader.info
        begun_s = self._now_s()
        if self._looked_at == (info.state, info.end_ns) or (info.state == "live" and begun_s < self._rests_until_s):
            return False
        self._looked_at = info.state, info.end_ns
        from_ns = max(info.started_ns, info.end_ns - RECENT_NS) if info.state == "live" else None
        found = find(self._reader, Selection(from_ns=from_ns, main_threads=True), self._phases)
        took_s = self._now_s() - begun_s
        self._rests_until_s = begun_s + max(EVERY_S, _REST * took_s)
        changed, self.findings = found != self.findings, found
        return changed
