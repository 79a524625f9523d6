"""What was seen of every thread, by stack, in blocks of time: the sum over any range, however long the run.

A block is read once, by SQL; what is recorded later is added to it. A range with more unread blocks than can be read
while somebody waits is answered by the sums of the file, and where it has none by half a second of each of some blocks,
evenly spread, until all were read.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RecordingRow, StackTotal
from profd.daemon.store.sums.held import MINUTE_NS
from profd.tui.samples.block import Block
from profd.tui.samples.sums import Sums, totals_of_sums
from profd.tui.view import Range

# Blocks get twice as long where there are too many: from a minute on they are whole minutes, as the sums are.
SHORTEST_NS = MINUTE_NS // 16
MOST_BLOCKS = 1024
# What is read at once for whoever waits: about as much as a tenth of a second allows with 200 intervals a second.
AT_ONCE_NS = 600 * SECOND_NS
SLICES = 120
SLICE_NS = SECOND_NS // 2
# So many are read out of the sums before it is looked whether somebody waits.
SUMMED_BLOCKS = 8
_GROUP = 16


class Blocks:
    """The blocks of one run."""

    def __init__(self, reader: RunReader, sums: Sums) -> None:
        self._reader = reader
        self._sums = sums
        self.version = 0
        """Another one whenever something was read or added."""
        self._origin_ns = reader.info.started_ns
        self.width_ns = SHORTEST_NS
        self._whole: dict[int, Block] = {}
        self._slices: dict[int, Block] = {}
        self._groups: dict[int, Block] = {}
        self._widen()

    def add(self, recordings: Iterable[RecordingRow]) -> None:
        """Take in recordings that were written since the last call: blocks that were read without them get them now."""
        self._widen()
        self.version += 1
        for recording in recordings:
            threads = [row.id for row in self._reader.threads.values() if row.process == recording.process]
            for index in range(self._index(recording.start_ns), self._index(recording.end_ns - 1) + 1):
                self._groups.pop(index // _GROUP, None)
                block = self._whole.get(index)
                if block is not None and block.recording < recording.id:
                    start_ns, end_ns = self._bounds(index)
                    from_ns, to_ns = max(start_ns, recording.start_ns), min(end_ns, recording.end_ns)
                    block.add(totals_of(self._reader, from_ns, to_ns, threads))

    @property
    def has_backlog(self) -> bool:
        """Whether there are blocks that were not read."""
        return len(self._whole) < self._count()

    def read_backlog(self) -> None:
        """Read some blocks that nobody has waited for yet, the newest first."""
        last = next((index + 1 for index in reversed(range(self._count())) if index not in self._whole), None)
        if last is None:
            return
        most = SUMMED_BLOCKS if self._are_minutes else max(AT_ONCE_NS // 4 // self.width_ns, 1)
        first = last - 1
        while first and last - first < most and first - 1 not in self._whole:
            first -= 1
        self._read(first, last)

    @property
    def read_share(self) -> float:
        """How many of the blocks were read, 0 to 1."""
        return min(len(self._whole) / self._count(), 1.0)

    def sum(self, asked: Range, threads: Collection[int] | None = None) -> tuple[Block, bool]:
        """Return what was seen of threads in a range, and whether that is all of it or an estimate."""
        found = Block()
        threads = frozenset(self._reader.threads) if threads is None else frozenset(threads)
        first, last = -(-(asked.from_ns - self._origin_ns) // self.width_ns), self._index(asked.to_ns)
        if asked.to_ns >= self._reader.info.end_ns:
            last = self._count()
        first = max(first, 0)
        if not self._has_all(first, last) and self._add_sums(found, asked, threads):
            return found, True
        if first >= last:
            found.add(totals_of(self._reader, asked.from_ns, asked.to_ns, threads))
            return found, True
        for from_ns, to_ns in ((asked.from_ns, self._bounds(first)[0]), (self._bounds(last)[0], asked.to_ns)):
            if from_ns < to_ns:
                found.add(totals_of(self._reader, from_ns, to_ns, threads))
        is_whole = self._prepare(first, last)
        self._add_up(found, first, last, threads)
        return found, is_whole

    def within(self, asked: Range) -> Iterator[tuple[Range, Block]]:
        """Yield the blocks in a range that were read, if only in part, each with the time that it is of."""
        first, last = max(self._index(asked.from_ns), 0), min(self._index(asked.to_ns - 1) + 1, self._count())
        self._prepare(first, last)
        for index in range(first, last):
            block = self._whole.get(index) or self._slices.get(index)
            if block is not None:
                yield Range(*self._bounds(index)), block

    def _add_sums(self, found: Block, asked: Range, threads: frozenset[int]) -> bool:
        """Add what the sums tell of a range and what lies beside them; False where they do not tell enough."""
        summed = self._sums.read(asked, threads)
        if summed is None:
            return False
        found.add(totals_of_sums(summed.rows))
        for rest in summed.rest:
            found.add(totals_of(self._reader, rest.from_ns, rest.to_ns, rest.threads))
        return True

    def _prepare(self, first: int, last: int) -> bool:
        """Read blocks, or a part of some of them where that would take too long; True where all are there."""
        unread = [index for index in range(first, last) if index not in self._whole]
        if len(unread) * self.width_ns <= AT_ONCE_NS:
            for index in unread:
                self._read(index, index + 1)
            return True
        if sum(index in self._slices for index in unread) * 2 < min(SLICES, len(unread)):
            for number in range(SLICES):
                self._read_slice(unread[number * len(unread) // SLICES])
        return False

    def _add_up(self, found: Block, first: int, last: int, threads: Collection[int] | None) -> None:
        """Add blocks to what was found; those that were read in part stand for those that were not, too."""
        unread, slices, index = 0, [], first
        while index < last:
            if index % _GROUP == 0 and index + _GROUP <= last and (group := self._group(index // _GROUP)) is not None:
                found.update(group, threads)
                index += _GROUP
                continue
            if index in self._whole:
                found.update(self._whole[index], threads)
            else:
                unread += 1
                slices += [self._slices[index]] if index in self._slices else []
            index += 1
        if slices:
            times = unread * self.width_ns // (len(slices) * SLICE_NS)
            for one in slices:
                found.update(one, threads, times)

    def _group(self, number: int) -> Block | None:
        """Return neighboring blocks as one; None where not all were read."""
        if number not in self._groups:
            blocks = [self._whole.get(index) for index in range(number * _GROUP, (number + 1) * _GROUP)]
            if not all(blocks):
                return None
            group = self._groups[number] = Block()
            for block in blocks:
                group.update(block or Block())
        return self._groups[number]

    def _read(self, first: int, last: int) -> None:
        """Read blocks as of one moment: what is written while they are read would else be counted now and later."""
        recording = -1
        found: dict[int, list[StackTotal]] = {}
        while recording != (newest := self._reader.newest_id("recording")):
            recording, found = newest, self._totals(first, last)
        for index in range(first, last):
            block = self._whole[index] = Block(recording)
            block.add(found.get(index, ()))
        self.version += 1

    def _totals(self, first: int, last: int) -> dict[int, list[StackTotal]]:
        """Return what was seen in blocks, by the sums where there are any of them."""
        if not self._are_minutes:
            return {index: totals_of(self._reader, *self._bounds(index)) for index in range(first, last)}
        found: defaultdict[int, list[StackTotal]] = defaultdict(list)
        asked = Range(self._bounds(first)[0], self._bounds(last)[0])
        rows, rests = self._sums.by_width(asked, self.width_ns, frozenset(self._reader.threads))
        for row in rows:
            total = StackTotal(row.thread, row.stack, row.samples, row.duration_ns)
            # Those at the ends of the run may begin before it, or end after it.
            index = min(max(row.minute * MINUTE_NS // self.width_ns, first), last - 1)
            found[index].append(total)
        for rest, index in itertools.product(rests, range(first, last)):
            from_ns, to_ns = self._bounds(index)
            from_ns, to_ns = max(from_ns, rest.from_ns or from_ns), min(to_ns, rest.to_ns or to_ns)
            if from_ns < to_ns:
                found[index] += totals_of(self._reader, from_ns, to_ns, rest.threads)
        return found

    @property
    def _are_minutes(self) -> bool:
        """Whether blocks are whole minutes, of which there may be sums."""
        return self.width_ns % MINUTE_NS == 0

    def _has_all(self, first: int, last: int) -> bool:
        return all(index in self._whole for index in range(first, last))

    def _read_slice(self, index: int) -> None:
        if index not in self._slices:
            middle_ns = sum(self._bounds(index)) // 2
            block = self._slices[index] = Block()
            block.add(totals_of(self._reader, middle_ns, middle_ns + SLICE_NS))
            self.version += 1

    def _widen(self) -> None:
        """Make two blocks one, as often as needed, where there are more of them than can be added up quickly."""
        while self._count() > MOST_BLOCKS:
            self.width_ns *= 2
            self.version += 1
            pairs, self._whole = self._whole, {}
            self._slices, self._groups = {}, {}
            for index in {index // 2 for index in pairs}:
                if 2 * index in pairs and 2 * index + 1 in pairs:
                    self._whole[index] = pairs[2 * index]
                    self._whole[index].update(pairs[2 * index + 1])
                    self._whole[index].recording = max(pairs[2 * index].recording, pairs[2 * index + 1].recording)

    def _count(self) -> int:
        return max(self._index(self._reader.info.end_ns - 1) + 1, 1)

    def _index(self, at_ns: int) -> int:
        return (at_ns - self._origin_ns) // self.width_ns

    def _bounds(self, index: int) -> tuple[int, int]:
        start_ns = self._origin_ns + index * self.width_ns
        return start_ns, start_ns + self.width_ns


def totals_of(
    reader: RunReader, from_ns: int | None, to_ns: int | None, threads: Collection[int] | None = None
) -> list[StackTotal]:
    """Return what was seen by thread and stack, all of which the reader knows afterwards."""
    return reader.stack_totals(from_ns, to_ns, threads)
