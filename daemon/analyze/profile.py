"""For how long each stack ran in a selection of a run: what tables and flame graphs are made of.

A share is a share of time. Samples are the evidence that it rests on, and no measure of it: a stretch that was sampled
faster has more of them, and of a process that is sampled in turns with others there are fewer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from profd.daemon.analyze.lives import Lives, take_lives
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.totals import selected_totals
from profd.daemon.analyze.uncertainty import Evidence
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal


class Profile(msgspec.Struct, frozen=True):
    """By stack id: the samples, and the time that they stand for in the threads selected.

    ``effective_samples`` is as many as would tell shares as exactly if each stood for the same time.
    """

    samples: dict[int, int] = {}
    time_ns: dict[int, float] = {}
    effective_samples: float = 0.0

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
    weights = thread_weights(reader, take_lives(reader), selection.from_ns, selection.to_ns)
    return weighted(totals, weights)


def thread_weights(
    reader: RunReader, lives: Lives, from_ns: int | None = None, to_ns: int | None = None
) -> dict[int, float]:
    """Return by thread what time a second of its recordings stands for: the weight of its process."""
    of_process = {process: lives.weight(process, from_ns, to_ns) for process in reader.processes}
    return {thread.id: of_process[thread.process] for thread in reader.threads.values()}


def weighted(totals: Iterable[StackTotal], weights: dict[int, float]) -> Profile:
    """Return the profile of what was seen by thread and stack, each thread with its weight."""
    samples: Counter[int] = Counter()
    time_ns: defaultdict[int, float] = defaultdict(float)
    evidence = Evidence()
    for total in totals:
        spent_ns = total.duration_ns * weights[total.thread]
        samples[total.stack] += total.samples
        time_ns[total.stack] += spent_ns
        evidence.add(total.thread, total.samples, spent_ns)
    return Profile(dict(samples), dict(time_ns), evidence.effective_samples())
