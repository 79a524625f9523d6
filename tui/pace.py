"""How fast the run steps lately, from the counts that were read of its loop counter."""

from __future__ import annotations

import itertools
from collections import deque

from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow
from profd.tui.snapshot import Steps

GAPS = 8


class Pace:
    """The last counts of the training process that tells; ranks step together, so one of them says it for all."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._series: int | None = None
        self._counts: deque[PointRow] = deque(maxlen=GAPS + 1)

    def catch_up(self) -> None:
        """Take in the counts that are new."""
        if self._series is None:
            self._series = min(
                (row.id for row in self._reader.series.values() if row.name == COUNT_SERIES), default=None
            )
        if self._series is not None:
            after_ns = self._counts[-1].at_ns + 1 if self._counts else None
            self._counts.extend(self._reader.points(self._series, after_ns))

    def steps(self) -> Steps | None:
        """Return the newest count and the rate up to it; None where there are none."""
        if len(self._counts) < 2:
            return None
        first, last = self._counts[0], self._counts[-1]
        recent = tuple(_per_s(before, after) for before, after in itertools.pairwise(self._counts))
        return Steps(int(last.value), _per_s(first, last), recent)


def _per_s(before: PointRow, after: PointRow) -> float:
    return (after.value - before.value) * SECOND_NS / (after.at_ns - before.at_ns)
