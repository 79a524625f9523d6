"""The main threads on the timeline: their phases over time, and the shares of the phases."""

from __future__ import annotations

from collections.abc import Sequence

from profd.daemon.analyze.lives import Lives
from profd.daemon.analyze.phases import PHASES
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, ThreadRow
from profd.tui.bins import Bin, Ruler, TimeBins
from profd.tui.snapshot import Lane, PhaseShare
from profd.tui.tallies import PhaseTally, Places


class MainThread:
    """The phases of one main thread, in bins and tallied."""

    def __init__(self, bins: TimeBins[str], tally: PhaseTally) -> None:
        self.bins = bins
        self.tally = tally


class Lanes:
    """The main threads of a run, or of a part of it."""

    def __init__(
        self,
        reader: RunReader,
        places: Places,
        lives: Lives,
        ruler: Ruler | None = None,
    ) -> None:
        """Begin without samples; with ``ruler`` for its time alone, and to be drawn with it."""
        self._reader = reader
        self._places = places
        self._lives = lives
        self._ruler = ruler
        self._threads: dict[int, MainThread] = {}

    def add(self, rows: Sequence[IntervalRow]) -> None:
        """Take in intervals; those of other threads are passed over."""
        ids = {thread.id for thread in self._reader.main_threads()}
        for row in rows:
            if row.thread not in ids:
                continue
            thread = self._threads.get(row.thread)
            if thread is None:
                thread = self._threads[row.thread] = self._new_thread()
            thread.bins.add(self._places.of_stack(row.stack)[0], row.start_ns, row.start_ns + row.duration_ns)
            thread.tally.add(row.stack, row.duration_ns)

    def draw(self, ruler: Ruler) -> tuple[Lane, ...]:
        """Return the threads that have samples, by rank."""
        threads = [thread for thread in self._reader.main_threads() if thread.id in self._threads]
        threads.sort(key=lambda thread: (self._rank(thread) is None, self._rank(thread) or 0, thread.id))
        return tuple(self._lane(thread, ruler, is_alone=len(threads) == 1) for thread in threads)

    def tally(self) -> PhaseTally:
        """Return the phases of all main threads together."""
        every = PhaseTally(self._places)
        from_ns = self._ruler.from_ns if self._ruler else None
        for thread in self._reader.main_threads():
            if thread.id in self._threads:
                every.update(self._threads[thread.id].tally, self._lives.weight(thread.process, from_ns))
        return every

    def _lane(self, thread: ThreadRow, ruler: Ruler, *, is_alone: bool) -> Lane:
        line = self._threads[thread.id]
        rank = self._rank(thread)
        pid = self._reader.processes[thread.process].pid
        label = f"rank {rank}" if rank is not None else "main" if is_alone else str(pid)
        return Lane(label, tuple(map(_mixture, line.bins.columns(ruler))), line.tally.shares())

    def _rank(self, thread: ThreadRow) -> int | None:
        return self._reader.processes[thread.process].rank

    def _new_thread(self) -> MainThread:
        if self._ruler is not None:
            bins = TimeBins[str](self._ruler.from_ns, int(self._ruler.column_ns))
        else:
            bins = TimeBins[str](self._reader.info.started_ns)
        return MainThread(bins, PhaseTally(self._places))


def _mixture(seen: Bin[str]) -> tuple[PhaseShare, ...]:
    whole_ns = sum(weight.length_ns for weight in seen.values())
    return tuple(
        PhaseShare(phase.name, seen[phase.name].length_ns / whole_ns) for phase in PHASES if phase.name in seen
    )
