"""The clocks of a job's nodes: by how much each is ahead of the first one's, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.analyze.nodes.alignment import Guess, align
from profd.daemon.analyze.nodes.departures import DepartureIndex
from profd.daemon.analyze.nodes.guesses import guess_by_counts, guess_by_joining, joined_ns, take_counts
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

FIRST, COLLECTIVES, JOINING, STEPS, WALL_CLOCK = (
    "the first node", "collectives", "the start of the job", "step counters", "the wall clock"
)  # fmt: skip

_LONGEST_NS = 300 * SECOND_NS
_FARTHEST_NS = 5 * SECOND_NS


class ClockOffset(msgspec.Struct, frozen=True):
    """By how much a node's clock is ahead of the first node's, give or take ``error_ns`` (95 % by collectives).

    ``source`` is what tells; where nothing does, the wall clocks are taken for equal and ``error_ns`` is None.
    ``matched`` is on how many moments it rests.
    """

    offset_ns: int
    error_ns: int | None
    source: str
    matched: int = 0


class _Side:
    """What is known of a node that tells its clock."""

    def __init__(self, reader: RunReader) -> None:
        self.info = reader.info
        self.departures = DepartureIndex(reader)
        self.joined_ns = joined_ns(reader, self.departures)
        self.counts = take_counts(reader, self.departures.threads)


def take_offsets(readers: Sequence[RunReader]) -> tuple[ClockOffset, ...]:
    """Return the offset of each node's clock; the first one's is none by definition."""
    first, *others = map(_Side, readers)
    return (ClockOffset(0, 0, FIRST), *(_offset(first, other) for other in others))


def _offset(first: _Side, other: _Side) -> ClockOffset:
    """Return by how much the clock of another node is ahead, by the best that tells it."""
    guesses = list(_guesses(first, other))
    for _, guess in (*guesses, (WALL_CLOCK, Guess(0, _FARTHEST_NS))):
        found = align(*_departures(first, other, guess), guess)
        if found is not None:
            by_chance_ns = max(found.high_ns - found.offset_ns, found.offset_ns - found.low_ns)
            error_ns = by_chance_ns + max(first.departures.slack_ns, other.departures.slack_ns)
            return ClockOffset(found.offset_ns, error_ns, COLLECTIVES, found.matched)
    for source, guess in guesses:
        return ClockOffset(guess.offset_ns, guess.reach_ns, source)
    return ClockOffset(0, None, WALL_CLOCK)


def _guesses(first: _Side, other: _Side) -> Iterator[tuple[str, Guess]]:
    """Yield first guesses and what they rest on, the best first."""
    by_joining = guess_by_joining(first.joined_ns, other.joined_ns)
    if by_joining is not None:
        yield JOINING, by_joining
    by_counts = guess_by_counts(first.counts, other.counts)
    if by_counts is not None:
        yield STEPS, by_counts


def _departures(first: _Side, other: _Side, guess: Guess) -> tuple[list[int], list[int]]:
    """Return when ranks of both nodes left their waits, of the time that both know the end."""
    ahead_ns = guess.offset_ns
    from_ns = max(first.info.started_ns, other.info.started_ns - ahead_ns)
    to_ns = max(min(first.info.end_ns, other.info.end_ns - ahead_ns), from_ns)
    from_ns = max(from_ns, to_ns - _LONGEST_NS)
    return (
        first.departures.between(from_ns, to_ns),
        other.departures.between(from_ns + ahead_ns, to_ns + ahead_ns),
    )
