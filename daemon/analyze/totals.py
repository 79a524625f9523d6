"""What was seen of the threads of a selection, added up by thread and stack: what everything else is counted from."""

from __future__ import annotations

from collections import Counter, defaultdict

from profd.daemon.analyze.conditions import covers_of
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow, StackTotal


def selected_totals(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> list[StackTotal]:
    """Return what was seen of a selection by thread and stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    threads = selection.threads(reader)
    if not threads:
        return []
    if selection.when:
        totals = _totals_when(reader, selection, threads)
    else:
        totals = reader.stack_totals(selection.from_ns, selection.to_ns, threads)
    if selection.phase is None:
        return totals
    index = phases or PhaseIndex(reader)
    return [total for total in totals if index.of_stack(total.stack) == selection.phase]


def _totals_when(reader: RunReader, selection: Selection, threads: frozenset[int]) -> list[StackTotal]:
    """Return the totals over the time for which the selection's conditions held.

    An interval that lies in it in part counts with that part of its time, and of its samples.
    """
    covers = covers_of(reader, selection.when, threads)
    time_ns: defaultdict[tuple[int, int], int] = defaultdict(int)
    samples: Counter[tuple[int, int]] = Counter()
    for interval in reader.intervals(selection.from_ns, selection.to_ns, threads):
        inside_ns = covers[interval.thread].between(interval.start_ns, interval.start_ns + interval.duration_ns)
        if inside_ns:
            time_ns[interval.thread, interval.stack] += inside_ns
            samples[interval.thread, interval.stack] += samples_inside(interval, inside_ns)
    return [
        StackTotal(thread, stack, samples[thread, stack], spent) for (thread, stack), spent in time_ns.items()
    ]


def samples_inside(interval: IntervalRow, inside_ns: int) -> int:
    """Return how many samples of an interval belong to ``inside_ns`` of it: whole ones, so that all sums agree."""
    return (2 * interval.samples * inside_ns + interval.duration_ns) // (2 * interval.duration_ns)
