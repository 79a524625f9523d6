"""What readings show of each integer on a main thread's stack: its values over time, and which loop is around it.

Pure. Whether any of them counts steps is not said here.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from profd.daemon.collect.counter import CounterReading, Place

EPOCH = re.compile(r"epoch", re.IGNORECASE)
MOST_CHANGES_OF_OUTER = 0.7
# No loop counts as far; but addresses, which is what torn values often are, begin above.
HIGHEST_COUNT = 10**12


class Variable(NamedTuple):
    """An integer by its name in a function on the stack."""

    place: Place
    name: str


class Sighting(NamedTuple):
    """The value that a variable had at ``at_ns``, give or take ``error_ns``; ``reading`` counts the readings."""

    at_ns: int
    error_ns: int
    value: int
    line: int
    reading: int


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
                seen = Sighting(reading.at_ns, reading.error_ns, value, frame.line, index)
                tracks.setdefault(Variable(frame.place, name), []).append(seen)
    return tracks


def sight(variable: Variable, reading: CounterReading, index: int = 0) -> Sighting | None:
    """Return the variable as one reading shows it; None where it was not on the stack."""
    for frame in reading.frames:
        if frame.place == variable.place and variable.name in frame.integers:
            return Sighting(reading.at_ns, reading.error_ns, frame.integers[variable.name], frame.line, index)
    return None


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


def find_outer(counter: Variable, history: Sequence[CounterReading]) -> Variable | None:
    """Return the counter of the loop around a counter's own: it goes on by one whenever the counter starts over.

    None where none is seen, or where the counter has not started over in these readings.
    """
    tracks = tracks_of(history)
    return outer_of(counter, tracks.get(counter, []), tracks)


def outer_of(counter: Variable, track: Track, tracks: Tracks) -> Variable | None:
    """Return what ``find_outer`` does, for a part of the counter's sightings."""
    falls = falls_of(track)
    if not falls:
        return None
    around = [variable for variable in tracks if variable != counter and variable.place.depth <= counter.place.depth]
    goes_on = [
        (changes, not EPOCH.search(variable.name), variable.place.depth, variable)
        for variable in around
        if (changes := _changes_as_outer(tracks[variable], track, falls)) is not None
    ]
    return min(goes_on)[-1] if goes_on else None


def _changes_as_outer(outer: Track, track: Track, falls: Sequence[tuple[Sighting, Sighting]]) -> int | None:
    """Return how often a variable goes on while a track is followed; None where it cannot be the loop around it."""
    values = {sighting.reading: sighting.value for sighting in outer}
    if any(sighting.reading not in values for sighting in track):
        return None
    rises = [values[after.reading] - values[before.reading] for before, after in itertools.pairwise(track)]
    if min(rises, default=-1) < 0 or sum(map(bool, rises)) > MOST_CHANGES_OF_OUTER * len(rises):
        return None
    if any(values[after.reading] <= values[before.reading] for before, after in falls):
        return None
    return sum(map(bool, rises))


def within_cycles(track: Track, outer: Variable | None, tracks: Tracks) -> list[tuple[Sighting, Sighting]]:
    """Return the neighbors in a track between which the loop around it did not go on."""
    pairs = list(itertools.pairwise(track))
    if outer is None:
        return pairs
    values = {sighting.reading: sighting.value for sighting in tracks[outer]}
    return [(before, after) for before, after in pairs if values[before.reading] == values[after.reading]]
