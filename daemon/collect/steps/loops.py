"""Finds the loop counter of a program in readings of the integers on its main thread's stack. Pure.

A counter is an integer that a frame which stays on the stack holds, and that grows as time goes by: by about as much in
equal times, again and again. It may start over where another integer goes on, as the batches of an epoch do. Whatever
changes without such an order (an inner loop that is much faster than the readings, a retry count) is none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import CounterReading
from profd.daemon.collect.steps.growth import LEAST_PRESENCE, Growth, growth_of
from profd.daemon.collect.steps.sightings import (
    EPOCH,
    Sighting,
    Track,
    Tracks,
    Variable,
    declared_in,
    tracks_of,
)

SAME_RATE = 0.15
LEAST_JUDGED = 3
RISES_INSIDE = 3
COMPANION_BITS = 8.0
BESIDE_SHARE = 0.8
SEEN_AS_OFTEN = 0.8
_FIRST_SEEN = 4

_ASIDE = re.compile(r"(^|[._])(eval|evaluate|evaluation|valid|validate|validation|test|predict)", re.IGNORECASE)


class Loop(msgspec.Struct, frozen=True):
    """A loop counter: it grows by ``stride`` a step, ``rate_per_s`` steps a second.

    ``line`` is the first one of the loop's body that was seen. ``sightings`` are those that it was found by.
    """

    counter: Variable
    stride: int
    rate_per_s: float
    line: int
    sightings: tuple[Sighting, ...]

    @property
    def first_rate_per_s(self) -> float:
        """Steps a second when it was first seen; the mean where it started over then."""
        seen = self.sightings[:_FIRST_SEEN]
        took_ns = seen[-1].at_ns - seen[0].at_ns
        if took_ns <= 0 or any(after.value <= before.value for before, after in itertools.pairwise(seen)):
            return self.rate_per_s
        return (seen[-1].value - seen[0].value) / self.stride * SECOND_NS / took_ns

    def __str__(self) -> str:
        """Return how the loop is called in words."""
        place = self.counter.place
        return f"loop counter `{self.counter.name}` in {place.function} ({place.file}:{self.line})"


def find_loop(history: Sequence[CounterReading]) -> Loop | None:
    """Return the loop that steps through a training, by readings in order of time; None where none is seen.

    Of several counters it is the innermost whose growth the readings can follow, and of those that grow together the
    one that grows least: it counts steps, where others add up samples or tokens.
    """
    tracks = tracks_of(history)
    candidates = _counters(history, tracks)
    if not candidates:
        return None
    best = _best(candidates)
    return Loop(
        counter=best.variable,
        stride=best.stride,
        rate_per_s=best.steps_per_s,
        line=min(sighting.line for sighting in best.sightings),
        sightings=best.sightings,
    )


def _counters(history: Sequence[CounterReading], tracks: Tracks) -> list[Growth]:
    """Return what counts, and what grows together with it: a count of samples shows itself sooner than one of steps."""
    if not history:
        return []
    readings, last = len(history), history[-1]
    booted_ns = last.at_ns - round(last.monotonic_s * SECOND_NS)
    declared = declared_in(history)
    grown = (growth_of(variable, tracks, readings, booted_ns, is_declared=variable in declared) for variable in tracks)
    sure = [found for found in grown if found is not None and not _is_outer_loop(found, tracks, declared)]
    known = {found.variable for found in sure}
    beside = [
        found
        for variable in tracks
        if sure and variable not in known and any(_grows_beside(tracks[variable], one) for one in sure)
        if (found := growth_of(variable, tracks, readings, booted_ns, COMPANION_BITS)) is not None
    ]
    return [*sure, *beside]


def _grows_beside(track: Track, counter: Growth) -> bool:
    """Say whether a variable was higher, nearly each time that it was seen, when a counter was."""
    values = {sighting.reading: sighting.value for sighting in track}
    rises = [
        (before.reading, after.reading)
        for before, after in itertools.pairwise(counter.sightings)
        if after.value > before.value
    ]
    seen = [pair for pair in rises if values.keys() >= set(pair)]
    higher = sum(values[after] > values[before] for before, after in seen)
    return len(seen) >= LEAST_PRESENCE * len(rises) and higher >= BESIDE_SHARE * len(seen)


def _is_outer_loop(growth: Growth, tracks: Tracks, declared: Set[Variable]) -> bool:
    """Say whether a variable counts epochs, with a loop inside that the readings cannot follow (yet)."""
    inner = [variable for variable in tracks if variable.place.depth >= growth.variable.place.depth]
    epochs = tracks[growth.variable]
    if growth.variable in declared and any(_starts_over_inside(tracks[one], epochs) for one in declared & set(inner)):
        return True
    if not EPOCH.search(growth.variable.name):
        return False
    return any(_moves_inside(tracks[variable], epochs) for variable in inner if variable != growth.variable)


def _starts_over_inside(track: Track, epochs: Track) -> bool:
    """Say whether a variable rose again and again while another one stayed, and fell only where that went on."""
    epoch_of = {sighting.reading: sighting.value for sighting in epochs}
    pairs = [pair for pair in itertools.pairwise(track) if epoch_of.keys() >= {pair[0].reading, pair[1].reading}]
    went_on = [epoch_of[after.reading] - epoch_of[before.reading] for before, after in pairs]
    grown = [after.value - before.value for before, after in pairs]
    falls = [further for further, change in zip(went_on, grown, strict=True) if change < 0]
    rises = sum(change > 0 and not further for further, change in zip(went_on, grown, strict=True))
    return bool(falls) and min(falls) > 0 and rises >= RISES_INSIDE


def _moves_inside(track: Track, epochs: Track) -> bool:
    """Say whether a variable changes while an epoch lasts; where no epoch was seen twice, whether it changes."""
    epoch_of = {sighting.reading: sighting.value for sighting in epochs}
    pairs = [pair for pair in itertools.pairwise(track) if epoch_of.keys() >= {pair[0].reading, pair[1].reading}]
    inside = [pair for pair in pairs if epoch_of[pair[0].reading] == epoch_of[pair[1].reading]]
    judged = inside if len(inside) >= LEAST_JUDGED else pairs
    changes = sum(before.value != after.value for before, after in judged)
    return len(pairs) >= LEAST_PRESENCE * len(epoch_of) and changes >= 0.5 * len(judged)


def _best(candidates: Sequence[Growth]) -> Growth:
    """Return the counter of steps among several counters."""
    in_training = [found for found in candidates if not _ASIDE.search(found.variable.place.function)] or candidates
    most = max(found.change_share for found in in_training)
    innermost = [found for found in in_training if found.change_share >= 0.75 * most]
    # By how much they grow, not how often: a stride may be twice the true one by chance.
    least = min(found.rate_per_s for found in innermost)
    together = [found for found in innermost if found.rate_per_s <= least * (1 + SAME_RATE)]
    best = min(together, key=_preference)
    # What a function hands down is the same counter there, and is called by where it comes from.
    same = [
        found
        for found in together
        if found.variable.name == best.variable.name and len(found.sightings) >= SEEN_AS_OFTEN * len(best.sightings)
    ]
    return min(same, key=lambda found: found.variable.place.depth)


def _preference(growth: Growth) -> tuple[int, int, int, int]:
    """Order counters of one loop: those first that never start over, grow by one, and are seen most often."""
    return growth.resets, growth.stride, -len(growth.sightings), growth.variable.place.depth
