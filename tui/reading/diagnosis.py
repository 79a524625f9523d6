"""The findings while the run goes on: over its last part while it is live, over all of it once it has ended.

Belongs to the feed's thread, and has others look. What is slow now is to be seen soon and to be gone soon after it has
ended, so the part is short; and looking for it must not take much of anyone's time, so it is done the more seldom the
longer it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo
from profd.tui.reading.questions import Answer, Question

RECENT_NS = 45 * SECOND_NS
EVERY_S = 5.0

_REST = 49
"""For how many times a look's CPU time the next one is put off: it may take a fiftieth of a core.

Not its duration: where cores are short looks are slow, and that is when findings are wanted.
"""


class Examiner(Protocol):
    """Whoever looks for findings."""

    def ask(self, question: Question) -> bool:
        """Ask something; False where there is nobody to ask any more."""
        ...

    def answer(self) -> Answer | None:
        """Return the answer, None where it is not there yet, or never will be."""
        ...

    @property
    def is_there(self) -> bool:
        """Whether there is somebody to answer."""
        ...


class Diagnosis:
    """What was found when it was last looked for. Looking takes seconds in a run of a day: nobody waits for it."""

    def __init__(self, reader: RunReader, examiner: Examiner, now_s: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._examiner = examiner
        self._now_s = now_s
        self._asked_at_s: float | None = None
        self._rests_until_s = 0.0
        self._looked_at: tuple[str, int] | None = None
        self.findings: tuple[Finding, ...] = ()
        self.has_looked = False
        self.has_failed = False
        """Whether there is nobody to look any more."""

    def renew(self) -> bool:
        """Look again where there is something new and it is time to; True where other things are known than before.

        Raises RunUnreadable where whoever looked could not read the run.
        """
        info = self._reader.info
        if self._asked_at_s is None and not self.has_failed and self._is_due(info):
            self._ask(info)
        if self._asked_at_s is None:
            return False
        answer = self._examiner.answer()
        if answer is not None:
            return self._take(answer)
        if not self._examiner.is_there:
            self._looked_at, self._asked_at_s = None, None
            self._rests_until_s = self._now_s() + EVERY_S
        return False

    def _is_due(self, info: RunInfo) -> bool:
        is_early = self._now_s() < self._rests_until_s and (info.state == "live" or self._looked_at is None)
        return self._looked_at != (info.state, info.end_ns) and not is_early

    def _ask(self, info: RunInfo) -> None:
        from_ns = max(info.started_ns, info.end_ns - RECENT_NS) if info.state == "live" else None
        if self._examiner.ask(Question(from_ns)):
            self._looked_at, self._asked_at_s = (info.state, info.end_ns), self._now_s()
        else:
            self.has_failed = True

    def _take(self, answer: Answer) -> bool:
        """Take note of what was found; True where that is something else than before."""
        if answer.error:
            raise RunUnreadable(answer.error, answer.remedy)
        self._rests_until_s = (self._asked_at_s or 0.0) + max(EVERY_S, _REST * answer.spent_s)
        self._asked_at_s = None
        if answer.findings == self.findings and self.has_looked:
            return False
        self.findings, self.has_looked = answer.findings, True
        return True
