"""The findings while the run goes on: over its last part while it is live, over all of it once it has ended.

Belongs to the feed's thread, and looks in one of its own. What is slow now is to be seen soon and to be gone soon after
it has ended, so the part is short; and looking for it must not take much of anyone's time, so it is done the more
seldom the longer it takes.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

from profd.daemon.analyze.findings.catalog import find
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo

RECENT_NS = 45 * SECOND_NS
EVERY_S = 5.0

_REST = 49
"""For how many times a look's CPU time the next one is put off: it may take a fiftieth of a core.

Not its duration: where cores are short looks are slow, and that is when findings are wanted.
"""


def at_once(look: Callable[[], None]) -> None:
    """Look before going on."""
    look()


def in_background(look: Callable[[], None]) -> None:
    """Look in a thread that nobody waits for, not even the end of the program."""
    threading.Thread(target=look, name="profd-diagnosis", daemon=True).start()


class Diagnosis:
    """What was found when it was last looked for.

    Looking takes half a minute in a run of a day, so ``start`` may do it in a thread: it has a reader of its own.
    """

    def __init__(
        self,
        reader: RunReader,
        now_s: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = at_once,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._reader = reader
        self._now_s = now_s
        self._start = start
        self._spent_s = spent_s
        self._is_looking = False
        self._rests_until_s = 0.0
        self._looked_at: tuple[str, int] | None = None
        self._found: tuple[Finding, ...] | None = None
        self._error: Exception | None = None
        self.findings: tuple[Finding, ...] = ()
        self.has_looked = False

    def renew(self) -> bool:
        """Look again where there is something new and it is time to; True where other things are known than before.

        Raises what went wrong when it was last looked.
        """
        info = self._reader.info
        is_early = info.state == "live" and self._now_s() < self._rests_until_s
        if not self._is_looking and self._looked_at != (info.state, info.end_ns) and not is_early:
            self._looked_at, self._is_looking = (info.state, info.end_ns), True
            self._start(functools.partial(self._look, info))
        if self._error is not None:
            raise self._error
        found, self._found = self._found, None
        if found is None or (found == self.findings and self.has_looked):
            return False
        self.findings, self.has_looked = found, True
        return True

    def _look(self, info: RunInfo) -> None:
        begun_s, spent_before_s = self._now_s(), self._spent_s()
        from_ns = max(info.started_ns, info.end_ns - RECENT_NS) if info.state == "live" else None
        try:
            with RunReader(self._reader.path) as reader:
                self._found = find(reader, Selection(from_ns=from_ns, main_threads=True), PhaseIndex(reader))
        except Exception as error:  # noqa: BLE001  the end of a thread: whatever it was, it is raised by who asked
            self._error = error
        self._rests_until_s = begun_s + max(EVERY_S, _REST * (self._spent_s() - spent_before_s))
        self._is_looking = False
