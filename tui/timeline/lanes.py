"""The main threads on the timeline: their phases by column, each column read once."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Sequence
from weakref import WeakKeyDictionary

from profd.daemon.analyze.phases import PHASES
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.columns import ColumnTime, Grid, stack_times
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RecordingRow, ThreadRow
from profd.tui.samples.block import Block
from profd.tui.samples.blocks import Blocks, totals_of
from profd.tui.samples.tallies import Places
from profd.tui.snapshot import PhaseShare
from profd.tui.timeline.bins import Ruler
from profd.tui.view import Range

# So much time of all main threads together is read interval by interval, in about a tenth of a second; of more than
# that some parts are read, which are enough for a picture.
EXACT_NS = 1200 * SECOND_NS
GRIDS = 4
_SLICES = 4
_SLICE_NS = SECOND_NS // 2

Phases = dict[str, int]
Column = dict[int, Phases]
"""By thread: the nanoseconds of each phase."""


class Lanes:
    """The phases of the main threads of a run by columns, of the grids that were drawn last."""

    def __init__(self, reader: RunReader, blocks: Blocks, places: Places) -> None:
        self._reader = reader
        self._blocks = blocks
        self._places = places
        self._known: OrderedDict[Grid, dict[int, Column]] = OrderedDict()
        self._drawn: tuple[Ruler, int] | None = None
        self._cells: dict[int, tuple[tuple[PhaseShare, ...], ...]] = {}
        # By block: what it was made of, and the phases of its threads.
        self._of_block: WeakKeyDictionary[Block, tuple[int, list[tuple[int, str, int]]]] = WeakKeyDictionary()

    def add(self, recordings: Iterable[RecordingRow]) -> None:
        """Forget the columns in which something was recorded since."""
        for recording in recordings:
            for (origin_ns, column_ns), known in self._known.items():
                first, last = ((at_ns - origin_ns) // column_ns for at_ns in (recording.start_ns, recording.end_ns))
                for column in range(first, last + 1):
                    known.pop(column, None)

    def ids(self) -> list[int]:
        """Return the ids of the main threads."""
        return [thread.id for thread in self._reader.main_threads()]

    def cells(self, ruler: Ruler) -> dict[int, tuple[tuple[PhaseShare, ...], ...]]:
        """Return by main thread the mixture of its phases in each column; nothing of threads that were not seen."""
        if self._drawn != (ruler, self._blocks.version):
            columns = self._of_blocks(ruler) if ruler.column_ns >= self._blocks.width_ns * 2 else self._of_grid(ruler)
            seen = {thread for column in columns for thread in column}
            self._cells = {thread: tuple(_mixture(column.get(thread, {})) for column in columns) for thread in seen}
            self._drawn = (ruler, self._blocks.version)
        return self._cells

    def threads(self, seen: Iterable[int]) -> list[ThreadRow]:
        """Return main threads by rank."""
        seen = set(seen)
        threads = [thread for thread in self._reader.main_threads() if thread.id in seen]
        return sorted(threads, key=lambda thread: (self.rank(thread) is None, self.rank(thread) or 0, thread.id))

    def label(self, thread: ThreadRow, *, is_alone: bool) -> str:
        """Return what a main thread is called: by its rank, else by its PID where there are several."""
        rank = self.rank(thread)
        pid = self._reader.processes[thread.process].pid
        return f"rank {rank}" if rank is not None else "main" if is_alone else str(pid)

    def rank(self, thread: ThreadRow) -> int | None:
        """Return the rank of a thread's process."""
        return self._reader.processes[thread.process].rank

    def _of_blocks(self, ruler: Ruler) -> Sequence[Column]:
        """Return the columns as blocks tell them, whose bounds need not be those of columns."""
        threads = frozenset(self.ids())
        columns: list[Column] = [defaultdict(lambda: defaultdict(int)) for _ in range(ruler.count)]
        for place, block in self._blocks.within(Range(ruler.from_ns, ruler.to_ns)):
            phases = self._phases(block, threads)
            for column in range(max(ruler.column_of(place.from_ns), 0), ruler.count):
                start_ns, end_ns = ruler.column_at(ruler.from_ns + column * ruler.column_ns)
                if start_ns >= place.to_ns:
                    break
                part = (min(end_ns, place.to_ns) - max(start_ns, place.from_ns)) / place.length_ns
                for thread, phase, time_ns in phases:
                    columns[column][thread][phase] += round(time_ns * part)
        return columns

    def _phases(self, block: Block, threads: Collection[int]) -> list[tuple[int, str, int]]:
        """Return the time of each phase of each thread, added up again only where the block has changed."""
        version, phases = self._of_block.get(block, (-1, []))
        if version != block.version:
            found: defaultdict[tuple[int, str], int] = defaultdict(int)
            for thread in block.threads.keys() & threads:
                for stack, time_ns in block.threads[thread].time_ns.items():
                    found[thread, self._places.of_stack(stack)[0]] += time_ns
            phases = [(thread, phase, time_ns) for (thread, phase), time_ns in found.items()]
            self._of_block[block] = block.version, phases
        return phases

    def _of_grid(self, ruler: Ruler) -> Sequence[Column]:
        """Return the columns as the intervals tell them, those that are not known yet being read."""
        known = self._known.setdefault(ruler.grid, {})
        self._known.move_to_end(ruler.grid)
        while len(self._known) > GRIDS:
            self._known.popitem(last=False)
        asked = range(ruler.first, ruler.first + ruler.count)
        missing = [column for column in asked if column not in known]
        if len(missing) * ruler.column_ns * len(self.ids()) <= EXACT_NS:
            for first, last in _stretches(missing):
                self._put(known, first, last, stack_times(self._reader, ruler.grid, first, last, self.ids()))
        else:
            for column in missing:
                known[column] = self._sampled(*ruler.column_at(ruler.grid.origin_ns + column * ruler.column_ns))
        return [known[column] for column in asked]

    def _put(self, known: dict[int, Column], first: int, last: int, times: Sequence[ColumnTime]) -> None:
        for column in range(first, last):
            known[column] = {}
        for one in times:
            self._count(known[one.column], one.thread, one.stack, one.time_ns)

    def _sampled(self, from_ns: int, to_ns: int) -> Column:
        """Return a column as some parts of it tell, where there are too many columns to read all of them."""
        column: Column = {}
        every_ns = (to_ns - from_ns) // _SLICES
        for start_ns in range(from_ns + every_ns // 2, to_ns, every_ns):
            for total in totals_of(self._reader, start_ns, min(start_ns + _SLICE_NS, to_ns), self.ids()):
                self._count(column, total.thread, total.stack, total.duration_ns)
        return column

    def _count(self, column: Column, thread: int, stack: int, time_ns: int) -> None:
        """Count time of a thread in a stack."""
        phases = column.setdefault(thread, {})
        phase = self._places.of_stack(stack)[0]
        phases[phase] = phases.get(phase, 0) + time_ns


def _stretches(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return columns in order as stretches [first, last) without a gap."""
    found: list[tuple[int, int]] = []
    for column in columns:
        if found and found[-1][1] == column:
            found[-1] = (found[-1][0], column + 1)
        else:
            found.append((column, column + 1))
    return found


def _mixture(phases: Phases) -> tuple[PhaseShare, ...]:
    whole_ns = sum(phases.values())
    return tuple(PhaseShare(phase.name, phases[phase.name] / whole_ns) for phase in PHASES if phases.get(phase.name))
