"""How far the clocks of a job's nodes are apart, and how sure that is.

There are many moments to compare. Some are missing on either side, and each is known only to within
the distance of two samples. Steps are alike, so that one may be taken for its neighbor: without a
good guess only their uneven lengths differ.

The guess comes from the joining of a job if both nodes were recorded from the start: all ranks
leave it together, once. Otherwise wall clocks are taken to agree within some seconds.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from profd.daemon.analyze.collectives import DepartureIndex
from profd.daemon.analyze.confidence import median_interval, standard_error
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.frameworks.frames import any_means, means
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import TimeRange

FEWEST_MATCHED = 20


class Guess(NamedTuple):
    """Where the second clock's offset to the first may be: ``offset_ns`` ± ``reach_ns``."""

    offset_ns: int
    reach_ns: int


class Offset(NamedTuple):
    """By how much the second clock is ahead of the first, from ``matched`` moments.

    ``low_ns`` to ``high_ns`` is the 95 % interval.
    """

    offset_ns: int
    low_ns: int
    high_ns: int
    matched: int


def align(first: Sequence[int], second: Sequence[int], guess: Guess) -> Offset | None:
    """Return by how much the second clock is ahead; None if other offsets fit nearly as well.

    ``first`` and ``second`` are the same moments by either clock, in order, both incomplete.
    """
    if min(len(first), len(second)) < FEWEST_MATCHED:
        return None
    # Each moment of the side with fewer is looked for on the other, which may have many more.
    if len(second) > len(first):
        turned = align(second, first, Guess(-guess.offset_ns, guess.reach_ns))
        return turned and Offset(-turned.offset_ns, -turned.high_ns, -turned.low_ns, turned.matched)
    # Moments farther apart do not belong together: half of the usual distance of neighbors.
    distances = [after - before for before, after in itertools.pairwise(first)]
    farthest_ns = min(int(statistics.median(distances) / 2), 100 * MILLISECOND_NS)
    found_ns = _search(first, second, guess, farthest_ns)
    if found_ns is None:
        return None
    differences = [(at_ns, _difference(first, at_ns - found_ns)) for at_ns in second]
    matched = [
        (at_ns, difference) for at_ns, difference in differences if abs(difference) < farthest_ns
    ]
    if len(matched) < FEWEST_MATCHED:
        return None
    center_ns = int(_center([difference for _, difference in matched]))
    # Times within one recording are off together. So the means over stretches of a recording's
    # length show how far differences vary by chance; if stretches are few, the differences do.
    blocks: defaultdict[int, list[int]] = defaultdict(list)
    for at_ns, difference in matched:
        blocks[at_ns // (RECORDING.whole_s * SECOND_NS)].append(difference)
    means = [_center(block) for block in blocks.values()]
    low_ns, high_ns = median_interval(
        means if len(means) >= 6 else [float(difference) for _, difference in matched]
    )
    low_ns, high_ns = min(int(low_ns), center_ns), max(int(high_ns), center_ns)
    return Offset(found_ns + center_ns, found_ns + low_ns, found_ns + high_ns, len(matched))


def _search(
    first: Sequence[int], second: Sequence[int], guess: Guess, farthest_ns: int
) -> int | None:
    """Return the offset at which moments match best; None if another matches nearly as well."""
    # The best has to beat every offset farther away than ``farthest_ns`` by far more than chance.
    steps = range(-guess.reach_ns, guess.reach_ns + 1, 4 * MILLISECOND_NS)
    tried = [guess.offset_ns + step_ns for step_ns in steps]
    shown = second[:: -(-len(second) * len(tried) // 500_000)]

    def misses(offset_ns: int) -> list[int]:
        return [min(abs(_difference(first, at_ns - offset_ns)), farthest_ns) for at_ns in shown]

    costs = [sum(misses(offset_ns)) for offset_ns in tried]
    best_ns = tried[min(range(len(tried)), key=costs.__getitem__)]
    rivals = [at for at, offset_ns in enumerate(tried) if abs(offset_ns - best_ns) > farthest_ns]
    if not rivals:
        return best_ns
    rival_ns = tried[min(rivals, key=costs.__getitem__)]
    gains = [rival - best for best, rival in zip(misses(best_ns), misses(rival_ns), strict=True)]
    return best_ns if statistics.fmean(gains) > 4 * standard_error(gains) else None


def _difference(first: Sequence[int], at_ns: int) -> int:
    place = bisect.bisect(first, at_ns)
    return min((at_ns - first[at] for at in (place - 1, place) if 0 <= at < len(first)), key=abs)


def _center(differences: Sequence[int]) -> float:
    """Return the mean without the outermost tenth at either end."""
    # Not the median: samples come at even distances on both sides, so that differences take few
    # values.
    left_out = len(differences) // 10
    return statistics.fmean(sorted(differences)[left_out : len(differences) - left_out])


_JOINED_WITHIN_NS = 60 * MILLISECOND_NS


def joined_ns(reader: RunReader, departures: DepartureIndex) -> dict[str, int]:
    """Return when a rank last left each function in which all ranks join, if it was seen there."""
    if not departures.threads or not any_means(reader.frames.values(), "joins all ranks"):
        return {}

    @functools.cache
    def joined_in(stack: int) -> list[str]:
        frames = reader.frames_of(stack)
        return [one.function for one in frames if means(one, "joins all ranks")]

    rank = departures.threads[0]  # a thread that is renamed has a row under each name
    threads = [thread.id for thread in departures.threads if thread.process == rank.process]
    found: dict[str, int] = {}
    for row in reader.intervals(threads=threads):
        found |= dict.fromkeys(joined_in(row.stack), row.end_ns)
    return {
        function: at_ns - departures.half_a_sample(rank, at_ns) for function, at_ns in found.items()
    }


def guess_by_joining(first: Mapping[str, int], second: Mapping[str, int]) -> Guess | None:
    """Return a guess by when both joined the job; None if unknown or contradictory."""
    differences = [second[function] - first[function] for function in first.keys() & second.keys()]
    if not differences or max(differences) - min(differences) > _JOINED_WITHIN_NS:
        return None
    return Guess(int(statistics.median(differences)), _JOINED_WITHIN_NS)


FIRST, COLLECTIVES, JOINING = "the first node", "collectives", "the start of the job"
WALL_CLOCK = "the wall clock"


class ClockOffset(NamedTuple):
    """By how much a node's clock leads the first's, ± ``error_ns`` (95 % by collectives).

    ``source`` is how it is known. If it is unknown, wall clocks count as equal and ``error_ns`` is
    None. ``matched`` is the number of moments that it rests on.
    """

    offset_ns: int
    error_ns: int | None
    source: str
    matched: int = 0


class _Side:
    """What is known of a node that concerns its clock."""

    def __init__(self, reader: RunReader) -> None:
        self.info = reader.info
        self.departures = DepartureIndex(reader)
        self.joined_ns = joined_ns(reader, self.departures)


def take_offsets(readers: Sequence[RunReader]) -> tuple[ClockOffset, ...]:
    first, *others = map(_Side, readers)
    return (ClockOffset(0, 0, FIRST), *(_offset(first, other) for other in others))


def _offset(first: _Side, other: _Side) -> ClockOffset:
    by_joining = guess_by_joining(first.joined_ns, other.joined_ns)
    for guess in filter(None, (by_joining, Guess(0, 5 * SECOND_NS))):
        # When ranks of both nodes left their waits, in the last five minutes that both have
        # recorded.
        ahead_ns = guess.offset_ns
        both = first.info.time.within(other.info.time.moved(-ahead_ns))
        last = TimeRange(both.to_ns - 300 * SECOND_NS, both.to_ns).within(both)
        left = other.departures.during(last.moved(ahead_ns))
        found = align(first.departures.during(last), left, guess)
        if found is not None:
            by_chance_ns = max(found.high_ns - found.offset_ns, found.offset_ns - found.low_ns)
            error_ns = by_chance_ns + max(first.departures.slack_ns, other.departures.slack_ns)
            return ClockOffset(found.offset_ns, error_ns, COLLECTIVES, found.matched)
    if by_joining is not None:
        return ClockOffset(by_joining.offset_ns, by_joining.reach_ns, JOINING)
    return ClockOffset(0, None, WALL_CLOCK)
