"""First guesses of how far two clocks are apart, good enough to tell each step from its neighbors, or nearly.

Where both nodes were recorded from the start: ranks that join a job all leave the joining together, once. Else by the
numbers of steps: the loop counter is read every few seconds, at whichever place of a step, and the late rank advances
its counter long after the others, so that is good to within a step or two.
"""

from __future__ import annotations

import bisect
import re
import statistics
from collections.abc import Mapping, Sequence

from profd.daemon.analyze.nodes.alignment import Guess
from profd.daemon.analyze.nodes.departures import DepartureIndex
from profd.daemon.analyze.steps.steps import COUNT_SERIES
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow, ThreadRow

_JOINING = re.compile(r"init_process_group|(DistributedDataParallel|FullyShardedDataParallel).__init__")
_JOINED_WITHIN_NS = 60 * MILLISECOND_NS
_STEPS_OFF = 1.5


def joined_ns(reader: RunReader, departures: DepartureIndex) -> dict[str, int]:
    """Return by function when a rank last left each of those in which all ranks join, as far as it was seen there."""
    stacks = _joining_stacks(reader)
    if not stacks or not departures.threads:
        return {}
    # A thread that is renamed has a row under each name.
    rank = departures.threads[0]
    names = [thread.id for thread in departures.threads if thread.process == rank.process]
    found: dict[str, int] = {}
    for row in reader.intervals(threads=names):
        for function in stacks.get(row.stack, ()):
            found[function] = row.start_ns + row.duration_ns
    return {function: at_ns - departures.half_a_sample(rank, at_ns) for function, at_ns in found.items()}


def guess_by_joining(first: Mapping[str, int], second: Mapping[str, int]) -> Guess | None:
    """Return a guess by when both joined the job; None where that was not seen of both, or contradicts itself."""
    differences = [second[function] - first[function] for function in first.keys() & second.keys()]
    if not differences or max(differences) - min(differences) > _JOINED_WITHIN_NS:
        return None
    return Guess(int(statistics.median(differences)), _JOINED_WITHIN_NS)


def take_counts(reader: RunReader, threads: Sequence[ThreadRow]) -> list[PointRow]:
    """Return the counts of the rank of which most are known, without those that repeat the one before."""
    found = [_counts(reader, thread.process) for thread in threads]
    return max(found, key=len, default=[])


def guess_by_counts(first: Sequence[PointRow], second: Sequence[PointRow]) -> Guess | None:
    """Return a guess by when both counted the same steps; None where they did not."""
    differences = [point.at_ns - at_ns for point in second if (at_ns := _time_of(first, point.value)) is not None]
    if not differences or len(first) < 2:
        return None
    spread_ns = (max(differences) - min(differences)) / 2
    return Guess(int(statistics.median(differences)), int(spread_ns + _STEPS_OFF * _step_ns(first)))


def _joining_stacks(reader: RunReader) -> dict[int, frozenset[str]]:
    """Return the stacks within functions in which ranks join, with these; callers come before what they call."""
    names = {row.id: row.function for row in reader.frames.values() if _JOINING.fullmatch(row.function)}
    found: dict[int, frozenset[str]] = {}
    for row in sorted(reader.stacks.values(), key=lambda row: row.id) if names else ():
        above = found.get(row.parent, frozenset())
        inside = above | {names[row.frame]} if row.frame in names else above
        if inside:
            found[row.id] = inside
    return found


def _counts(reader: RunReader, process: int) -> list[PointRow]:
    series = reader.find_series(COUNT_SERIES, process)
    found: list[PointRow] = []
    for point in reader.points(series.id) if series else ():
        if not found or point.value > found[-1].value:
            found.append(point)
    return found


def _time_of(counts: Sequence[PointRow], count: float) -> int | None:
    """Return when a count was reached; None outside of those that are known."""
    number = bisect.bisect_left(counts, count, key=lambda point: point.value)
    if not counts or count < counts[0].value or number == len(counts):
        return None
    before, after = counts[max(number - 1, 0)], counts[number]
    if after.value == before.value:
        return after.at_ns
    share = (count - before.value) / (after.value - before.value)
    return before.at_ns + int(share * (after.at_ns - before.at_ns))


def _step_ns(counts: Sequence[PointRow]) -> float:
    """Return how long a step takes, of two counts or more."""
    return (counts[-1].at_ns - counts[0].at_ns) / (counts[-1].value - counts[0].value)
