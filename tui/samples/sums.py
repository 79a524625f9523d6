"""What the sums of a run file tell of a range: all of it but a minute or two at its ends, however long it is.

Knows which sums there are. How ranges without any are read is the business of ``blocks``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal
from profd.daemon.store.sums.held import MINUTE_NS
from profd.daemon.store.sums.stored import Rest, Split, StackMinuteRow
from profd.tui.view import Range

# What lies beside the sums is read interval by interval, while somebody waits.
MOST_BESIDE_NS = 2 * MINUTE_NS


class Summed(msgspec.Struct, frozen=True):
    """The sums of threads in a range by stack, and what of the range lies beside them."""

    rows: tuple[StackMinuteRow, ...]
    rest: tuple[Rest, ...]


class Sums:
    """The sums of one run file."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._asked: tuple[Range, frozenset[int], int] | None = None
        self._found: Summed | None = None

    def read(self, asked: Range, threads: frozenset[int]) -> Summed | None:
        """Return what the sums tell of a range; None where too much of it is not in them."""
        newest = self._reader.newest_id("recording")
        if self._asked != (asked, threads, newest):
            self._asked, self._found = (asked, threads, newest), self._read(asked, threads)
        return self._found

    def by_width(self, asked: Range, width_ns: int, threads: frozenset[int]) -> tuple[list[StackMinuteRow], list[Rest]]:
        """Return the sums of threads by stack and ``width_ns``, which are whole minutes, and what lies beside them."""
        found = self._told(asked, threads)
        rows = [row for one in found for row in self._reader.sums.by_minute(one, width_ns // MINUTE_NS)]
        return rows, [rest for one in found for rest in one.rest]

    def _read(self, asked: Range, threads: frozenset[int]) -> Summed | None:
        found = self._told(asked, threads)
        rest = tuple(rest for one in found for rest in one.rest)
        if not any(one.minutes for one in found) or self._length_ns(rest) > MOST_BESIDE_NS:
            return None
        return Summed(tuple(row for one in found for row in self._reader.sums.by_stack(one)), rest)

    def _told(self, asked: Range, threads: frozenset[int]) -> list[Split]:
        info = self._reader.info
        # Ends that are those of the run are left open: the minutes at its ends need not be whole then.
        from_ns = None if asked.from_ns <= info.started_ns else asked.from_ns
        to_ns = None if asked.to_ns >= info.end_ns else asked.to_ns
        return self._reader.sums.split(from_ns, to_ns, threads)

    def _length_ns(self, rest: tuple[Rest, ...]) -> int:
        """Return for how long a range has to be read interval by interval: threads that are read at once count once."""
        info = self._reader.info
        bounds = {(one.from_ns or info.started_ns, one.to_ns or info.end_ns) for one in rest}
        return sum(to_ns - from_ns for from_ns, to_ns in bounds)


def totals_of_sums(rows: tuple[StackMinuteRow, ...]) -> Iterator[StackTotal]:
    """Yield what sums tell of a range by thread and stack."""
    for row in rows:
        yield StackTotal(row.thread, row.stack, row.samples, row.duration_ns)
