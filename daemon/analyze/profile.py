"""How often each stack was seen in a selection of a run: what tables and flame graphs are made of."""

from __future__ import annotations

from collections import Counter

import msgspec

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader


class Profile(msgspec.Struct, frozen=True):
    """Samples by stack: ``samples[stack id]``, and their sum."""

    samples: dict[int, int]
    total: int


def take_profile(reader: RunReader, selection: Selection, phases: PhaseIndex | None = None) -> Profile:
    """Count the samples of a selection by stack.

    ``phases`` is needed only where the selection names a phase; one is made where it is not given.
    """
    counted: Counter[int] = Counter()
    threads = selection.threads(reader)
    if threads:
        seen = reader.stack_samples(selection.from_ns, selection.to_ns, threads)
        index = phases or PhaseIndex(reader)
        for (_, stack), samples in seen.items():
            if selection.phase is None or index.of_stack(stack) == selection.phase:
                counted[stack] += samples
    return Profile(samples=dict(counted), total=sum(counted.values()))
