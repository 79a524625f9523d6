"""What was seen of the threads of a selection, by thread and stack: ``RunReader.totals``, narrowed by conditions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.pieces import selected_pieces
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal
from profd.daemon.store.sums.held import IDLE_BELOW
from profd.daemon.store.sums.split import Rest
from profd.daemon.store.sums.stored import StackMinuteRow


def selected_totals(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> list[StackTotal]:
    """Return what was seen of a selection by thread and stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    threads = selection.threads(reader)
    if not threads:
        return []
    if selection.when:
        totals = _totals_while(reader, msgspec.structs.replace(selection, phase=None), threads)
    else:
        totals = reader.totals(selection.from_ns, selection.to_ns, threads)
    if selection.phase is None:
        return totals
    index = phases or PhaseIndex(reader)
    return [total for total in totals if index.of_stack(total.stack) == selection.phase]


def parts_while(parts: Iterable[Iterable[Condition]]) -> Callable[[StackMinuteRow], tuple[int, ...]]:
    """Return what gives the samples and the time of a sum for each of some parts, all in one row.

    A part is the conditions that hold together, of which there are sums.
    """
    return attrgetter(*(name for part in parts for name in _PARTS[frozenset(one.name for one in part)]))


_PARTS: Mapping[frozenset[str], tuple[str, str]] = {
    frozenset(): ("samples", "duration_ns"),
    frozenset({"gpu-idle"}): ("idle_samples", "idle_ns"),
    frozenset({"on-cpu"}): ("cpu_samples", "cpu_ns"),
    frozenset({"gpu-idle", "on-cpu"}): ("both_samples", "both_ns"),
}


def _totals_while(reader: RunReader, selection: Selection, threads: frozenset[int]) -> list[StackTotal]:
    """Return what was seen by thread and stack while the conditions of a selection held."""
    time_ns: defaultdict[tuple[int, int], int] = defaultdict(int)
    samples: Counter[tuple[int, int]] = Counter()
    rests: list[Rest] = [Rest(threads, selection.from_ns, selection.to_ns)]
    if all(one.name == "on-cpu" or one == Condition("gpu-idle", IDLE_BELOW) for one in selection.when):
        part = parts_while([selection.when])
        splits = reader.sums.split(selection.from_ns, selection.to_ns, threads)
        for row in (row for one in splits for row in reader.sums.by_stack(one)):
            seen, spent_ns = part(row)
            if seen or spent_ns:
                time_ns[row.thread, row.stack] += spent_ns
                samples[row.thread, row.stack] += seen
        rests = [rest for one in splits for rest in one.rest]
    for rest in rests:
        within = msgspec.structs.replace(selection, from_ns=rest.from_ns, to_ns=rest.to_ns)
        for piece in selected_pieces(reader, within, rest.threads):
            time_ns[piece.thread, piece.stack] += piece.duration_ns
            samples[piece.thread, piece.stack] += piece.samples
    return [StackTotal(*key, samples[key], spent_ns) for key, spent_ns in time_ns.items()]
