"""The main threads on the timeline: their phases by column, those of a process in one row.

Minutes are read from the sums as far as these have them, narrower columns from the intervals. A
column that is still to be read is estimated from a part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.analyze.profile import Profile, phase_shares
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.naming import process_title
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid, minute_times, stack_times
from profd.daemon.store.rows import ColumnTime, RecordingRow
from profd.daemon.timerange import TimeRange
from profd.tui.columns import Columns, Ruler, Sums
from profd.tui.snapshot import PhaseRow, PhaseShares

# A column that is not read yet is estimated from this much time after its middle.
_PART_NS = SECOND_NS // 2

ProcessPhase = tuple[int, str]


def shown_shares(profile: Profile, phases: PhaseIndex) -> PhaseShares:
    """Return the phases of a profile, the largest first."""
    return {phase: share for phase, share in phase_shares(profile, phases).items() if share}


class PhaseRows:
    """The phases of a run's main threads by column."""

    def __init__(self, reader: RunReader, phases: PhaseIndex) -> None:
        self._reader, self._phases = reader, phases
        self.columns = Columns[ProcessPhase](reader, self._read)
        self._estimates: dict[tuple[int, int], Sums[ProcessPhase]] = {}
        """What parts of columns have, by the ends of these columns."""
        self._ruler = Ruler(0, 1, 0)

    def add(self, recordings: Iterable[RecordingRow]) -> None:
        """Read the columns again in which something was recorded since."""
        if starts_ns := [recording.start_ns for recording in recordings]:
            self.columns.forget(min(starts_ns))

    def ids(self) -> list[int]:
        return [thread.id for thread in self._reader.main_threads()]

    def cells(self, ruler: Ruler) -> dict[int, tuple[PhaseShares, ...]]:
        """Return by process the mixture of its main threads' phases in each column.

        Processes of which none was seen are left out.
        """
        if ruler != self._ruler:
            self._ruler = ruler
            self._estimates.clear()
        columns = [
            _mixtures(self._estimate(index) if sums is None else sums)
            for index, sums in enumerate(self.columns.take(ruler))
        ]
        seen = {process for column in columns for process in column}
        return {process: tuple(column.get(process, {}) for column in columns) for process in seen}

    def rows(self, ruler: Ruler, shares: Mapping[int, PhaseShares]) -> tuple[PhaseRow, ...]:
        """Return the row of each process that trains, by rank.

        ``shares`` are those of their phases over the whole view. A row is labeled by its rank or
        number, or by its PID if there are several without one.
        """
        cells = self.cells(ruler)
        shown = (self._reader.processes[process] for process in cells.keys() | shares.keys())
        ranked = sorted(shown, key=attrgetter("by_rank"))
        rows = []
        empty: tuple[PhaseShares, ...] = ({},) * ruler.count
        for process in ranked:
            is_numbered = len(ranked) == 1 or (process.rank, process.ordinal) != (None, None)
            label = (
                process_title(process.role, process.ordinal, process.rank)
                if is_numbered
                else str(process.pid)
            )
            rows.append(PhaseRow(label, cells.get(process.id, empty), shares.get(process.id, {})))
        return tuple(rows)

    def _estimate(self, index: int) -> Sums[ProcessPhase]:
        from_ns = self._ruler.from_ns + index * self._ruler.column_ns
        to_ns = min(from_ns + self._ruler.column_ns, self._reader.info.end_ns)
        if (from_ns, to_ns) not in self._estimates:
            middle_ns = from_ns + self._ruler.column_ns // 2
            part = TimeRange(middle_ns, min(middle_ns + _PART_NS, to_ns))
            totals = self._reader.stack_totals(part, self.ids())
            times = (
                ColumnTime(0, total.thread, total.stack, total.duration_ns) for total in totals
            )
            (self._estimates[from_ns, to_ns],) = self._by_phase(times, 0, 1)
        return self._estimates[from_ns, to_ns]

    def _read(self, grid: Grid, first: int, last: int) -> list[Sums[ProcessPhase]]:
        times = (
            self._minutes(grid, first, last)
            if grid == self.columns.minutes
            else stack_times(self._reader, grid, first, last, self.ids())
        )
        return self._by_phase(times, first, last)

    def _minutes(self, grid: Grid, first: int, last: int) -> Iterator[ColumnTime]:
        """Yield the time of the main threads by stack in minutes of the run.

        It comes from the sums as far as they have it.
        """
        asked = TimeRange(first * MINUTE_NS, last * MINUTE_NS).moved(grid.origin_ns)
        run = self._reader.info.time
        for one in self._reader.rollups.split(asked.open_at(run), self.ids()):
            yield from minute_times(self._reader, one.threads, one.minutes)
            for rest in one.rest:
                begin, end = ((at_ns - grid.origin_ns) // MINUTE_NS for at_ns in rest.within(asked))
                yield from stack_times(self._reader, grid, begin, end, one.threads)

    def _by_phase(
        self, times: Iterable[ColumnTime], first: int, last: int
    ) -> list[Sums[ProcessPhase]]:
        """Return the nanoseconds of each process and phase in the columns [first, last)."""
        found = [defaultdict[ProcessPhase, float](float) for _ in range(first, last)]
        for one in times:
            column = found[min(max(one.column, first), last - 1) - first]
            process = self._reader.threads[one.thread].process
            column[process, self._phases.of_stack(one.stack)] += one.time_ns
        return [*found]


def _mixtures(sums: Sums[ProcessPhase]) -> dict[int, PhaseShares]:
    """Return the mixture of phases of each process in a column."""
    processes: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for (process, phase), time_ns in sums.items():
        processes[process][phase] = time_ns
    return {process: _mixture(phases) for process, phases in processes.items()}


def _mixture(times_ns: Mapping[str, float]) -> PhaseShares:
    whole_ns = sum(times_ns.values())
    return {
        phase.name: time_ns / whole_ns for phase in PHASES if (time_ns := times_ns.get(phase.name))
    }
