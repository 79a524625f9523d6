"""What was seen of the threads of a selection, added up by thread and stack: what everything else is counted from."""

from __future__ import annotations

from collections import Counter, defaultdict

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.pieces import selected_pieces
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal


def selected_totals(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> list[StackTotal]:
    """Return what was seen of a selection by thread and stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    threads = selection.threads(reader)
    if not threads:
        return []
    if selection.when:
        return _totals_when(reader, selection, threads, phases)
    totals = reader.stack_totals(selection.from_ns, selection.to_ns, threads)
    if selection.phase is None:
        return totals
    index = phases or PhaseIndex(reader)
    return [total for total in totals if index.of_stack(total.stack) == selection.phase]


def _totals_when(
    reader: RunReader, selection: Selection, threads: frozenset[int], phases: PhaseIndex | None
) -> list[StackTotal]:
    """Return the totals over the time for which the selection's conditions held."""
    time_ns: defaultdict[tuple[int, int], int] = defaultdict(int)
    samples: Counter[tuple[int, int]] = Counter()
    for piece in selected_pieces(reader, selection, threads, phases):
        time_ns[piece.thread, piece.stack] += piece.duration_ns
        samples[piece.thread, piece.stack] += piece.samples
    return [StackTotal(thread, stack, samples[thread, stack], spent) for (thread, stack), spent in time_ns.items()]
