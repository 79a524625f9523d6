"""What readings show of each integer on a main thread's stack: its values over time, and which loop is around it.

Pure. Whether any of them counts steps is not said here.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import CounterReading, Place

EPOCH = re.compile(r"epoch", re.IGNORECASE)
MOST_CHANGES_OF_OUTER = 0.7
# A counter that starts over at least once on the way makes less than half of the steps up to where it is seen.
SHORT_SHARE = 0.6
RISES_TO_NOTICE = 3
# No loop counts as far; but addresses, which is what torn values often are, begin above.
HIGHEST_COUNT = 10**12


class Variable(NamedTuple):
    """An integer by its name in a function on the stack."""

    place: Place
    name: str


class Sighting(NamedTuple):
    """The value that a variable had at ``at_ns``, give or take ``error_ns``; ``reading`` counts the readings.

    ``is_current`` says that it is surely the one of the round that the loop is in, by the line.
    """

    at_ns: int
    error_ns: int
    value: int
    line: int
    reading: int
    is_current: bool = False


Track = Sequence[Sighting]
Tracks = Mapping[Variable, Track]


def tracks_of(history: Sequence[CounterReading]) -> dict[Variable, list[Sighting]]:
    """Return every variable with its sightings, oldest first."""
    tracks: dict[Variable, list[Sighting]] = {}
    for index, reading in enumerate(history):
        for frame in reading.frames:
            for name, value in frame.integers.items():
                if abs(value) > HIGHEST_COUNT:
                    continue
                is_current = name in frame.current
                seen = Sighting(reading.at_ns, reading.error_ns, value, frame.line, index, is_current)
                tracks.setdefault(Variable(frame.place, name), []).append(seen)
    return tracks


def declared_in(history: Sequence[CounterReading]) -> frozenset[Variable]:
    """Return the variables that loops count by, as the source said at any of the readings."""
    return frozenset(
        Variable(frame.place, name) for reading in history for frame in reading.frames for name in frame.counters
    )


def sight(variable: Variable, reading: CounterReading, index: int = 0) -> Sighting | None:
    """Return the variable as one reading shows it; None where it was not on the stack."""
    for frame in reading.frames:
        if frame.place == variable.place and variable.name in frame.integers:
            value, is_current = frame.integers[variable.name], variable.name in frame.current
            return Sighting(reading.at_ns, reading.error_ns, value, frame.line, index, is_current)
    return None


def is_anything_rising(history: Sequence[CounterReading]) -> bool:
    """Say whether a variable has lately risen, by more than a step, each time that it was seen."""
    # It need not be on the stack each time.
    tracks = tracks_of(list(history)[-2 * RISES_TO_NOTICE :]).values()
    last = [track[-RISES_TO_NOTICE - 1 :] for track in tracks]
    return any(
        len(track) > RISES_TO_NOTICE
        and all(after.value > before.value + 1 for before, after in itertools.pairwise(track))
        for track in last
    )


def falls_of(track: Track) -> list[tuple[Sighting, Sighting]]:
    """Return the neighbors between which a variable fell: its loop has started over."""
    return [(before, after) for before, after in itertools.pairwise(track) if after.value < before.value]


def growing_run(track: Track) -> list[Sighting]:
    """Return the most sightings of a track between which the variable never fell: all but those that were torn.

    Of runs of equal length the one with the lowest values.
    """
    ends: list[int] = []  # the last sighting of the best run of each length
    before: list[int | None] = []
    for index, sighting in enumerate(track):
        length = bisect_right(ends, sighting.value, key=lambda end: track[end].value)
        before.append(ends[length - 1] if length else None)
        ends[length : length + 1] = [index]
    run: list[Sighting] = []
    at: int | None = ends[-1] if ends else None
    while at is not None:
        run.append(track[at])
        at = before[at]
    return run[::-1]


def find_outer(counter: Variable, history: Sequence[CounterReading], rate_per_s: float) -> Variable | None:
    """Return the counter of the loop around a counter's own: it goes on when, and only when, the counter starts over.

    A counter that has started over and caught up shows it by having grown by less than it should. None where no such
    loop is seen, or where the counter has not started over in these readings.
    """
    tracks = tracks_of(history)
    track = _surest(tracks.get(counter, []))
    return _outer_among(counter, track, tracks, [*falls_of(track), *_shortfalls_of(track, rate_per_s)])


def outer_of(counter: Variable, track: Track, tracks: Tracks) -> Variable | None:
    """Return the counter of the loop around, for a part of the counter's sightings and where its rate is not known."""
    track = _surest(track)
    return _outer_among(counter, track, tracks, list(itertools.pairwise(track))) if falls_of(track) else None


def _surest(track: Track) -> Track:
    """Return the sightings that are surely of the round that the loop is in, where there are enough of them.

    Others may show the last round of an epoch when the next epoch has begun.
    """
    current = [sighting for sighting in track if sighting.is_current]
    return current if len(current) > RISES_TO_NOTICE else track


def _shortfalls_of(track: Track, rate_per_s: float) -> list[tuple[Sighting, Sighting]]:
    """Return the neighbors between which a variable grew by less than it should have."""
    return [
        (before, after)
        for before, after in itertools.pairwise(track)
        if 0 <= after.value - before.value < SHORT_SHARE * rate_per_s * (after.at_ns - before.at_ns) / SECOND_NS - 1
    ]


def _outer_among(
    counter: Variable, track: Track, tracks: Tracks, breaks: Sequence[tuple[Sighting, Sighting]]
) -> Variable | None:
    """Return the loop around whose counter goes on only at some breaks, and at every fall."""
    around = [variable for variable in tracks if variable != counter and variable.place.depth <= counter.place.depth]
    goes_on = [
        (changes, not EPOCH.search(variable.name), variable.place.depth, variable)
        for variable in around
        if (changes := _changes_as_outer(tracks[variable], track, breaks)) is not None
    ]
    return min(goes_on)[-1] if goes_on else None


def _changes_as_outer(outer: Track, track: Track, breaks: Sequence[tuple[Sighting, Sighting]]) -> int | None:
    """Return how often a variable goes on while a track is followed; None where it cannot be the loop around it."""
    values = {sighting.reading: sighting.value for sighting in outer}
    if any(sighting.reading not in values for sighting in track):
        return None
    pairs = list(itertools.pairwise(track))
    rises = [values[after.reading] - values[before.reading] for before, after in pairs]
    changes = sum(map(bool, rises))
    if not changes or min(rises) < 0 or changes > MOST_CHANGES_OF_OUTER * len(rises):
        return None
    may_rise = {after.reading for _, after in breaks}
    if any(rise and after.reading not in may_rise for rise, (_, after) in zip(rises, pairs, strict=True)):
        return None
    if any(values[after.reading] <= values[before.reading] for before, after in falls_of(track)):
        return None
    return changes


def within_cycles(track: Track, outer: Variable | None, tracks: Tracks) -> list[tuple[Sighting, Sighting]]:
    """Return the neighbors in a track between which the loop around it did not go on."""
    pairs = list(itertools.pairwise(track))
    if outer is None:
        return pairs
    values = {sighting.reading: sighting.value for sighting in tracks[outer]}
    return [(before, after) for before, after in pairs if values[before.reading] == values[after.reading]]
