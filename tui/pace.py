"""How fast the run steps, now and by column, from the counts that were read of its loop counter."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import Lost, lost_ranges, take_steps
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT
from profd.daemon.store.rollups import Grid
from profd.daemon.store.rows import EventRow, PointRow, SeriesRow
from profd.daemon.timerange import TimeRange
from profd.tui.columns import Columns, Ruler, Sums
from profd.tui.snapshot import Series, Steps

GAPS = 10
STEPS = "steps_per_s"
LATELY_NS = 10 * SECOND_NS
"""What is now is the mean of this last stretch of time: workers sampled in rotation are in it."""
AHEAD_NS = 3 * SECOND_NS // 2
"""A count comes each second, and at once when a pause begins.

After this time without one the step is unknown.
"""
_LEAST_STEPS = 10
_RECENT_NS = 120 * SECOND_NS


class Pace:
    """The counts of one training process, which stand for all, because ranks step together."""

    def __init__(
        self, reader: RunReader, phases: PhaseIndex, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._reader, self._phases, self._now_ns = reader, phases, now_ns
        self._whole: Steps | None = None
        self._series: SeriesRow | None = None
        self._counts: deque[PointRow] = deque(maxlen=GAPS + 1)
        self.columns = Columns[str](reader, self._read)
        self._events: Sequence[EventRow] = ()
        self._lost: list[Lost] = []

    def catch_up(self, events: Sequence[EventRow]) -> None:
        """Take in the new counts; ``events`` are all of the run so far."""
        self._series = self._series or next(iter(self._reader.list_series(STEP_COUNT)), None)
        if self._series is None:
            return
        before, self._events = self._lost, events
        self._lost = lost_ranges(events, self._series.process or 0)
        if self._counts:
            new_ns = self._counts[-1].at_ns + 1
        else:
            last = self._reader.last_point(self._series.id)
            new_ns = (last.at_ns if last else 0) - _RECENT_NS
        self._counts.extend(self._reader.points(self._series.id, TimeRange(new_ns)))
        # What looked like a pause may turn out to be time of which nobody knows the steps.
        self.columns.forget(new_ns if self._lost == before else 0)

    def steps(self, *, of_all: bool = True) -> Steps | None:
        """Return the newest count and the rate up to it, or the totals of an ended run.

        None if there are fewer than two counts. The totals are the steps that the summary counts,
        because the last count is older than the end of the loop. They take a while to compute;
        without ``of_all``, an ended run gives its newest count, too.
        """
        if len(self._counts) < 2:
            return None
        if of_all and not self._reader.info.is_live:
            if self._whole is None:
                # Imported here because the summary's text imports all the rules, which the first
                # picture does not need.
                from profd.daemon.render.text import exactness

                whole = take_steps(self._reader, Selection(), self._phases)
                self._whole = replace(
                    self._latest(),
                    per_s=whole.per_s,
                    made=whole.count,
                    exactness=exactness(whole),
                    pauses=False,
                )
            return self._whole
        return self._latest()

    def of_process(self, process: int, within: TimeRange) -> float | None:
        series = self._reader.find_series(STEP_COUNT, process)
        return (
            self._rate(series.id, within, lost_ranges(self._events, process))
            if series is not None
            else None
        )

    def _latest(self) -> Steps:
        """Return the present step: the newest count, and the steps since then.

        The latter are estimated from the pace of the last ten seconds. If the count stands still,
        the loop pauses.
        """
        since_ns = self._lost[-1].time.to_ns if self._lost else 0
        counts = [one for one in self._counts if one.at_ns >= since_ns]
        last = self._counts[-1]
        if len(counts) < 2:
            return Steps(None, None)
        first = next(
            (count for count in counts[:-1] if count.at_ns >= last.at_ns - LATELY_NS), counts[-2]
        )
        per_s = last.per_s_since(first)
        pauses = last.value == counts[-2].value
        since_s = (self._now_ns() - last.at_ns) / SECOND_NS
        ahead = (
            int(per_s * since_s)
            if self._reader.info.is_live and not pauses and 0 < since_s <= AHEAD_NS / SECOND_NS
            else 0
        )
        if self._lost:  # nobody knows how many steps there were before
            return Steps(None, per_s, pauses=pauses)
        return Steps(
            int(last.value) + ahead,
            per_s,
            exactness="~" if ahead else "",
            pauses=pauses,
        )

    def strip(self, ruler: Ruler, chosen: TimeRange | None) -> Series:
        """Return the steps per second in each column, and one value.

        The value is of the chosen range, or else of now while the run is live.
        """
        cells = tuple(
            sums["steps"] / sums["s"] if sums else None for sums in self.columns.take(ruler)
        )
        if chosen is None and self._reader.info.is_live:
            steps = self.steps()
            return Series(STEPS, cells, steps.per_s if steps else None, "now")
        return Series(STEPS, cells, self.mean_per_s(chosen or ruler.time), "mean")

    def mean_per_s(self, within: TimeRange) -> float | None:
        return self._rate(self._series.id, within, self._lost) if self._series else None

    def sure_per_s(self, within: TimeRange) -> float | None:
        """Return the mean rate, if the steps are so many that one more or less changes little."""
        per_s = self.mean_per_s(within)
        return per_s if per_s and per_s * within.length_s >= _LEAST_STEPS else None

    def _rate(self, series: int, within: TimeRange, lost: Sequence[Lost]) -> float | None:
        if any(one.time.overlaps(within) for one in lost):
            return None
        first = self._reader.points_around(series, within.from_ns - 1)[1]
        last = self._reader.points_around(series, within.to_ns)[0]
        if first is None or last is None or last.at_ns <= first.at_ns:
            before, after = (self._count_at(series, at_ns) for at_ns in within)
            return (
                None
                if before is None or after is None
                else (after - before) * SECOND_NS / within.length_ns
            )
        return last.per_s_since(first)

    def _read(self, grid: Grid, first: int, last: int) -> list[Sums[str]]:
        """Return the steps and the seconds of columns whose counts are known at both ends."""
        if self._series is None:
            return [{}] * (last - first)
        counts = [
            self._count_at(self._series.id, grid.origin_ns + column * grid.column_ns)
            for column in range(first, last + 1)
        ]
        return [
            {}
            if one is None or two is None
            else {"steps": max(two - one, 0.0), "s": grid.column_ns / SECOND_NS}
            for one, two in itertools.pairwise(counts)
        ]

    def _count_at(self, series: int, at_ns: int) -> float | None:
        """Return the count at a time, interpolated between the counts before and after it.

        None if these are far apart.
        """
        before, after = self._reader.points_around(series, at_ns)
        if before is None or after is None or after.at_ns - before.at_ns > MINUTE_NS:
            return None
        between = TimeRange(before.at_ns, after.at_ns)
        if any(one.time.overlaps(between) for one in self._lost):
            return None
        return before.value + (after.value - before.value) * (at_ns - before.at_ns) / (
            after.at_ns - before.at_ns
        )
