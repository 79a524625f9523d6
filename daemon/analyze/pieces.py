"""The intervals of a selection one by one, in order of time, each cut to what the selection takes of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from profd.daemon.analyze.conditions import covers_of, within
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.held import samples_inside


class Piece(msgspec.Struct, frozen=True):
    """A thread stood in a stack over [start_ns, end_ns), and ``samples`` samples of it were taken there."""

    thread: int
    stack: int
    start_ns: int
    end_ns: int
    samples: int

    @property
    def duration_ns(self) -> int:
        """How long it lasted."""
        return self.end_ns - self.start_ns


def selected_pieces(
    reader: RunReader, selection: Selection, threads: frozenset[int], phases: PhaseIndex | None = None
) -> Iterator[Piece]:
    """Yield what a selection takes of the intervals of some threads, those that start first first.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    index = None if selection.phase is None else phases or PhaseIndex(reader)
    covers = covers_of(reader, selection.when, threads, within(selection.from_ns, selection.to_ns))
    for interval in reader.intervals(selection.from_ns, selection.to_ns, threads):
        if index is not None and index.of_stack(interval.stack) != selection.phase:
            continue
        end_ns = interval.start_ns + interval.duration_ns
        if not covers:
            yield Piece(interval.thread, interval.stack, interval.start_ns, end_ns, interval.samples)
            continue
        parts = list(covers[interval.thread].ranges_between(interval.start_ns, end_ns))
        samples = samples_inside(interval.samples, interval.duration_ns, sum(end - start for start, end in parts))
        for number, part in enumerate(parts):
            yield Piece(interval.thread, interval.stack, *part, samples=0 if number else samples)
