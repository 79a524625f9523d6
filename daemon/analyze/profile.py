"""For how long each stack ran in a selection of a run: what tables and flame graphs are made of.

A share is a share of time. Samples are the evidence that it rests on, and no measure of it: a stretch that was sampled
faster has more of them, and of a process that is sampled in turns with others there are fewer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from profd.daemon.analyze.certainty.changes import ChangesSeen, take_changes, together
from profd.daemon.analyze.lives import Lives, take_lives
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.totals import selected_totals
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal


class Profile(msgspec.Struct, frozen=True):
    """By stack id: the samples, and the time that they stand for in the threads selected.

    ``changes`` are those of the threads from stack to stack, selected or not: they tell how exact the times are.
    """

    samples: dict[int, int] = {}
    time_ns: dict[int, float] = {}
    changes: ChangesSeen = ChangesSeen()

    @property
    def total_samples(self) -> int:
        """The sum of the samples."""
        return sum(self.samples.values())

    @property
    def total_ns(self) -> float:
        """The sum of the times: thread time, so that two threads have two seconds each second."""
        return sum(self.time_ns.values())


def take_profile(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> Profile:
    """Add up the time of a selection by stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    totals = selected_totals(reader, selection, phases)
    if not totals:
        return Profile()
    weights = process_weights(reader, take_lives(reader), selection.from_ns, selection.to_ns)
    return weighted(reader, totals, take_changes(reader, selection), weights)


def process_weights(
    reader: RunReader, lives: Lives, from_ns: int | None = None, to_ns: int | None = None
) -> dict[int, float]:
    """Return by process what time a second of its recordings stands for."""
    return {process: lives.weight(process, from_ns, to_ns) for process in reader.processes}


def weighted(
    reader: RunReader,
    totals: Iterable[StackTotal],
    changes: Mapping[int, ChangesSeen],
    weights: Mapping[int, float],
) -> Profile:
    """Return the profile of what was seen by thread and stack; changes and weights are by process."""
    samples: Counter[int] = Counter()
    time_ns: defaultdict[int, float] = defaultdict(float)
    for total in totals:
        spent_ns = total.duration_ns * weights[reader.threads[total.thread].process]
        samples[total.stack] += total.samples
        time_ns[total.stack] += spent_ns
    return Profile(dict(samples), dict(time_ns), together(changes, weights))
