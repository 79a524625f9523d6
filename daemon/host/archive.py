"""Applies the retention to what the register holds: removes files, forgets runs of which nothing is left."""

from __future__ import annotations

from collections.abc import Collection

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.host.configuration import Retention
from profd.daemon.host.journal import Journal
from profd.daemon.host.register import Entry, Register
from profd.daemon.host.retention import DETAIL, Kept, removals
from profd.daemon.host.shelf import Shelf

AGED_EVERY_NS = 3600 * SECOND_NS
AGED_SHARE = 0.1
"""Of the runs that are kept so many at most, and one at least, lose something for their age in that time.

A machine that boots with a clock of years ahead finds everything too old; until that is set right little is gone.
"""


class Archive:
    """The runs of the supervisor that have ended."""

    def __init__(self, register: Register, shelf: Shelf, journal: Journal, clock: Clock) -> None:
        self._register = register
        self._shelf = shelf
        self._journal = journal
        self._clock = clock

    def thin(self, retention: Retention, in_use: Collection[str]) -> None:
        """Remove what the retention does not keep; of the runs ``in_use`` (live, or being reported) nothing."""
        entries = self._register.entries()
        ended = [entry for entry in entries if entry.ended_ns and entry.run_id not in in_use]
        kept = [self._kept(entry) for entry in ended]
        live = {entry.run_id for entry in entries} - {entry.run_id for entry in ended}
        live_bytes = sum(map(self._shelf.detail_bytes, live))
        # By the clock on the wall, which may have been set right since this one was made.
        now_ns = self._clock.now_ns() + self._clock.wall_jump_ns()
        most_old = self._most_old(len(kept), now_ns)
        gone = removals(kept, retention, now_ns, live_bytes, most_old)
        if gone and most_old:
            self._register.note_aged(now_ns)
        for removal in gone:
            if removal.part == DETAIL:
                self._shelf.remove_detail(removal.run_id)
            else:
                self._shelf.remove_report(removal.run_id)
            self._journal.say("removed", f"the {removal.part} was removed to keep to the retention", run=removal.run_id)
        for entry in ended:
            if not self._shelf.detail_bytes(entry.run_id) and not self._shelf.report_bytes(entry.run_id):
                self._register.remove(entry.run_id)

    def _most_old(self, kept: int, now_ns: int) -> int:
        """Return of how many runs something may go for their age now."""
        if 0 <= now_ns - self._register.aged_ns() < AGED_EVERY_NS:
            return 0
        return max(int(AGED_SHARE * kept), 1)

    def _kept(self, entry: Entry) -> Kept:
        run_id = entry.run_id
        return Kept(
            run_id=run_id,
            # A session that began before the clock was set right tells of another age than its files.
            ended_ns=max(entry.ended_ns, self._shelf.written_ns(run_id)),
            is_incident=bool(entry.incident),
            detail_bytes=self._shelf.detail_bytes(run_id),
            report_bytes=self._shelf.report_bytes(run_id),
        )
