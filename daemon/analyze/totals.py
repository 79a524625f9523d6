"""What was seen of the threads of a selection, added up by thread and stack: what everything else is counted from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.pieces import selected_pieces
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.summed import Rest, are_summed, part_while, sums_by_stack, told
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal


def selected_totals(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> list[StackTotal]:
    """Return what was seen of a selection by thread and stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    threads = selection.threads(reader)
    if not threads:
        return []
    totals = _added(_totals(reader, msgspec.structs.replace(selection, phase=None), threads))
    if selection.phase is None:
        return totals
    index = phases or PhaseIndex(reader)
    return [total for total in totals if index.of_stack(total.stack) == selection.phase]


def _totals(reader: RunReader, selection: Selection, threads: frozenset[int]) -> Iterator[StackTotal]:
    """Yield what was seen by thread and stack, in as many parts as it has to be read in."""
    if not are_summed(selection.when):
        yield from _read(reader, selection, Rest(threads, selection.from_ns, selection.to_ns))
        return
    part = part_while(selection.when)
    for one in told(reader, selection, threads):
        for row in sums_by_stack(reader, one):
            samples, time_ns = part(row)
            if time_ns or samples or not selection.when:
                yield StackTotal(row.thread, row.stack, samples, time_ns)
        for rest in one.rest:
            yield from _read(reader, selection, rest)


def _read(reader: RunReader, selection: Selection, rest: Rest) -> Iterable[StackTotal]:
    """Return what the intervals of a range of time say."""
    if not selection.when:
        return reader.stack_totals(rest.from_ns, rest.to_ns, rest.threads)
    time_ns: defaultdict[tuple[int, int], int] = defaultdict(int)
    samples: Counter[tuple[int, int]] = Counter()
    within = msgspec.structs.replace(selection, from_ns=rest.from_ns, to_ns=rest.to_ns)
    for piece in selected_pieces(reader, within, rest.threads):
        time_ns[piece.thread, piece.stack] += piece.duration_ns
        samples[piece.thread, piece.stack] += piece.samples
    return [StackTotal(thread, stack, samples[thread, stack], spent) for (thread, stack), spent in time_ns.items()]


def _added(totals: Iterable[StackTotal]) -> list[StackTotal]:
    """Return totals, those of one thread in one stack as one."""
    found: dict[tuple[int, int], StackTotal] = {}
    for total in totals:
        key = total.thread, total.stack
        known = found.get(key)
        found[key] = total if known is None else _sum(known, total)
    return list(found.values())


def _sum(one: StackTotal, other: StackTotal) -> StackTotal:
    return StackTotal(one.thread, one.stack, one.samples + other.samples, one.duration_ns + other.duration_ns)
