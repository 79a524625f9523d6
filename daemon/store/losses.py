"""What a run lost on the way to its file: how many records, of which time and why, as an event of the run."""

from __future__ import annotations

import threading
from collections import Counter

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import EventHappened, Record
from profd.daemon.store.tables import time_of

SAID_AGAIN_NS = 60 * SECOND_NS
"""Losses that go on are said no more often."""


class Losses:
    """Counts what is dropped, from any thread; nothing that was counted is left unsaid."""

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()
        self._unsaid: Counter[str] = Counter()
        self._first_ns = self._last_ns = 0
        self._silent_to_ns = 0

    def count(self, record: Record, why: str) -> None:
        """Take in that a record was dropped."""
        at_ns = time_of(record)
        with self._lock:
            if not self._unsaid:
                self._first_ns = self._last_ns = at_ns
            self.total += 1
            self._unsaid[why] += 1
            self._first_ns, self._last_ns = min(self._first_ns, at_ns), max(self._last_ns, at_ns)

    def take(self, written_ns: int, *, is_end: bool = False) -> list[EventHappened]:
        """Return what is to be said in a run that is written up to a time; it then counts as said.

        What was dropped is younger than what is still queued. To tell of it before that is written would have the sums
        of the run believe that all up to then is there.
        """
        with self._lock:
            if not self._unsaid or (not is_end and written_ns < max(self._first_ns, self._silent_to_ns)):
                return []
            self._silent_to_ns = written_ns + SAID_AGAIN_NS
            length_s = (self._last_ns - self._first_ns) / SECOND_NS
            said = "; ".join(f"{count} {_were_dropped(count)}: {why}" for why, count in self._unsaid.most_common())
            self._unsaid.clear()
            text = f"within {length_s:.0f} s {said}" if length_s >= 1 else said
            return [EventHappened(min(self._first_ns, written_ns), "loss", text)]


def _were_dropped(count: int) -> str:
    return "record was dropped" if count == 1 else "records were dropped"
