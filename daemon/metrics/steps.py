"""How many steps each rank has made and how fast it makes them, by the counts that the recorder read."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import STEP_RATE, STEPS, Sample
from profd.daemon.metrics.look import Look, rank_of
from profd.daemon.metrics.trends import Trends
from profd.daemon.store.rows import PointRow

_COUNTS = 9
"""The rate is that over so many counts, which are seconds apart."""
_STALE_NS = 60 * SECOND_NS
"""After so long without a count nobody knows the rate."""

Counts = deque[PointRow]


class StepCounts:
    """The newest counts of each rank; a rank that was counted keeps its number when its process ends."""

    def __init__(self, trends: Trends) -> None:
        """Ask ``trends`` for the rate where nothing is counted."""
        self._trends = trends
        self._counts: dict[str, tuple[int, Counts]] = {}

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in the new counts."""
        ranks = {member.id: rank_of(member) for member in look.trainers()}
        for series in look.of_name(COUNT_SERIES):
            if series.process in ranks and series.id in look.newest:
                self._catch_up(look, ranks[series.process], series.id)
        for rank, (_, counts) in self._counts.items():
            yield Sample(STEPS, (look.run, rank), counts[-1].value)
            yield Sample(STEP_RATE, (look.run, rank), _rate(counts, look.reader.info.end_ns))
        if not self._counts and ranks and self._trends.step_rate is not None:
            # Ranks step together, so that of one says it for all.
            yield Sample(STEP_RATE, (look.run, min(ranks.values())), self._trends.step_rate)

    def _catch_up(self, look: Look, rank: str, series: int) -> None:
        known, counts = self._counts.get(rank, (0, None))
        # The younger process is the one that the rank is now.
        if counts is None or series > known:
            counts = deque(maxlen=_COUNTS)
        elif series < known:
            return
        counts.extend(look.reader.points(series, counts[-1].at_ns + 1 if counts else look.began_ns))
        if counts:
            self._counts[rank] = series, counts


def _rate(counts: Counts, now_ns: int) -> float:
    first, last = counts[0], counts[-1]
    if last.at_ns <= first.at_ns or now_ns - last.at_ns > _STALE_NS:
        return math.nan
    return (last.value - first.value) * SECOND_NS / (last.at_ns - first.at_ns)
