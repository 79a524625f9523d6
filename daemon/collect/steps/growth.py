"""Tells by its values whether an integer grows as the counter of a loop does. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.counter import is_progress_bar
from profd.daemon.collect.steps.evidence import is_paced, order_bits, pace_bits, pace_per_s, paced_chain
from profd.daemon.collect.steps.sightings import (
    Sighting,
    Track,
    Tracks,
    Variable,
    growing_run,
    outer_of,
    within_cycles,
)

# Asked for of evidence, and some more for each time that the counter starts over for no reason that is seen.
EVIDENCE_BITS = 20.0
RESET_BITS = 5.0
# What programs call a counter of steps, speaks for one a little.
NAME_BITS = 4.0
# And that the source says so, much: what remains to be seen is that it counts steps, not rounds that are too short.
DECLARED_BITS = 10.0
_COUNTING = re.compile(r"step|iter|batch_i|idx", re.IGNORECASE)
PACE_LENGTHS = (8, 10, 12, 15, 20)
CHAIN_LENGTH = 24
RUN_LENGTHS = (10, 12, 15, 20, 30, 40)
LEAST_RISES = 2
# tqdm's count is one by its name and place, and is seldom on the stack: that it grows at all is enough.
LEAST_RISES_OF_BAR = 1
RISES_A_FALL = 1.2
LEAST_PRESENCE = 0.5
STEADY_FACTOR = 2.0
STEADY_SHARE = 0.75
MOST_STILLS_A_RISE = 4
HIGHEST_RATE_PER_S = 1e5
LONGEST_COUNT_S = 365 * 86_400
CLOCK_UNITS = (1, 1_000)  # seconds and milliseconds; whatever is finer grows too fast
CLOCK_MARGIN_S = 10.0  # deadlines lie ahead of the clock
LEAST_STRIDE = 4
MOST_TORN_FIRST = 3
STRIDE_BITS = 16.0


class Growth(msgspec.Struct, frozen=True):
    """How a variable grew, with ``rises``, over the last of its sightings; ``resets`` are those of all of them.

    A stride is what it grows by a step: what all its rises are multiples of, where they differ enough to tell.
    """

    variable: Variable
    sightings: tuple[Sighting, ...]
    rises: tuple[int, ...]
    resets: int
    changes: int
    rate_per_s: float

    @property
    def stride(self) -> int:
        """By how much it grows a step."""
        return math.gcd(*self.rises) if self._stride_bits >= STRIDE_BITS else 1

    @property
    def is_stride_told(self) -> bool:
        """Say whether it is plain by how much it grows a step: a few rises may all be multiples of 4 by chance."""
        return not 0 < self._stride_bits < STRIDE_BITS or len(set(self.rises)) == 1

    @property
    def steps_per_s(self) -> float:
        """How many times a second it grows."""
        return self.rate_per_s / self.stride

    @property
    def change_share(self) -> float:
        """In how many of the readings it had changed, 0 to 1."""
        return self.changes / len(self.sightings)

    @property
    def _stride_bits(self) -> float:
        """How much speaks for a stride."""
        divisor = math.gcd(*self.rises)
        return len(set(self.rises)) * math.log2(divisor) if divisor >= LEAST_STRIDE else 0.0


def growth_of(
    variable: Variable,
    tracks: Tracks,
    readings: int,
    booted_ns: int,
    bits: float = EVIDENCE_BITS,
    *,
    is_declared: bool = False,
) -> Growth | None:
    """Return how a variable grew over as many of its last sightings as tell; None where it is no counter.

    ``bits`` of evidence are asked for: fewer will do for what grows together with a counter. What the source declares
    to be one speaks for it. At ``booted_ns`` the target's monotonic clock began.
    """
    track = tracks[variable]
    least_rises = LEAST_RISES_OF_BAR if _counts_a_bar(variable) else LEAST_RISES
    if not _rises_mostly(track, least_rises):
        return None
    if _counts_a_bar(variable):
        last: Track = growing_run(track)
    elif len(track) >= LEAST_PRESENCE * (readings - track[0].reading):
        last = _best_part(variable, track, tracks, bits - _known_bits(variable, is_declared=is_declared))
    else:
        last = []
    pairs = [
        (before, after)
        for before, after in within_cycles(last, outer_of(variable, last, tracks), tracks)
        if after.value >= before.value
    ]
    if sum(after.value > before.value for before, after in pairs) < least_rises:
        return None
    found = _measure(variable, track, last, pairs)
    # What grows together with a counter need not show once more that it grows steadily.
    is_steady = bits < EVIDENCE_BITS or (found.is_stride_told and _is_steady(found.rate_per_s, pairs))
    return found if is_steady and not _is_clock(found, booted_ns) else None


def _known_bits(variable: Variable, *, is_declared: bool) -> float:
    """Return what speaks for a counter before its values are looked at."""
    if is_declared:
        return DECLARED_BITS
    return NAME_BITS if _COUNTING.search(variable.name) else 0.0


def _rises_mostly(track: Track, least_rises: int) -> bool:
    """Say whether a variable rises more often than it falls: a cheap look that most variables do not pass."""
    changes = [after.value - before.value for before, after in itertools.pairwise(track)]
    rises, falls = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return rises >= least_rises and rises >= RISES_A_FALL * falls


def _best_part(variable: Variable, track: Track, tracks: Tracks, bits: float) -> Track:
    """Return the last sightings by which a variable shows itself a counter; empty where none do."""
    chain = paced_chain(track[-CHAIN_LENGTH:])
    if chain.bits >= bits:
        return chain.sightings
    run = _run_with_outliers(track, bits)
    if run:
        return run
    length = _telling_length(variable, track, tracks, bits)
    return track[len(track) - length :] if length else _paced_part(track, bits)


def _paced_part(track: Track, bits: float) -> Track:
    """Return the last sightings between which a variable grew by one rate, as few as are evidence enough."""
    for length in PACE_LENGTHS:
        pairs = list(itertools.pairwise(track[-length:]))
        rate_per_s = pace_per_s(pairs)
        if pace_bits(rate_per_s, pairs) >= bits:
            paced = {sighting.reading for pair in pairs if is_paced(rate_per_s, *pair) for sighting in pair}
            return [sighting for sighting in track[-length:] if sighting.reading in paced]
    return []


def _run_with_outliers(track: Track, bits: float) -> Track:
    """Return the sightings between which a variable grew all the time, without those that were torn.

    As few of the last ones as are evidence enough; in the more ways some can be left out, the more often chance leaves
    such a run. Empty where all of them are not enough.
    """
    for length in RUN_LENGTHS:
        run = growing_run(track[-length:])
        values = {sighting.value for sighting in run}
        left_out = min(length, len(track)) - len(run)
        if order_bits(len(values), left_out) >= bits:
            return run
    return []


def _telling_length(variable: Variable, track: Track, tracks: Tracks, wanted_bits: float) -> int:
    """Return how many of the last sightings are evidence enough that a variable grows and starts over; 0: all are not.

    It grows from one sighting to the next, but where it starts over.
    """
    outer = outer_of(variable, track, tracks)
    values = {sighting.reading: sighting.value for sighting in tracks[outer]} if outer else {}
    bits, rises = 0.0, 0
    for length, (before, after) in enumerate(reversed(list(itertools.pairwise(track))), start=2):
        goes_on = values.get(before.reading) == values.get(after.reading)
        if after.value > before.value and goes_on:
            rises += 1
            bits += math.log2(rises + 1)
        elif after.value != before.value:
            bits -= RESET_BITS if goes_on else 0.0
            rises = 0
        if bits >= wanted_bits:
            return length
    return 0


def _measure(variable: Variable, track: Track, last: Track, pairs: Sequence[tuple[Sighting, Sighting]]) -> Growth:
    changes = [after.value - before.value for before, after in itertools.pairwise(track)]
    grown = sum(after.value - before.value for before, after in pairs)
    took_ns = sum(after.at_ns - before.at_ns for before, after in pairs)
    rate_per_s = grown * SECOND_NS / took_ns
    torn = 0 if _is_one_chain(last) else _torn_first(rate_per_s, last)
    return Growth(
        variable=variable,
        sightings=tuple(last[torn:]),
        rises=tuple(after.value - before.value for before, after in pairs if after.value > before.value),
        resets=sum(change < 0 for change in changes),
        changes=sum(before.value != after.value for before, after in itertools.pairwise(last[torn:])),
        rate_per_s=rate_per_s,
    )


def _is_one_chain(last: Track) -> bool:
    """Say whether each sighting is where the ones before it led to: then the first ones are no exception."""
    return len(paced_chain(last).sightings) == len(last)


def _torn_first(rate_per_s: float, last: Track) -> int:
    """Return how many of the first may have been torn as well as any, and have no others before them to show that."""
    torn = sum(1 for _ in itertools.takewhile(lambda pair: not is_paced(rate_per_s, *pair), itertools.pairwise(last)))
    return torn if torn <= MOST_TORN_FIRST else 0


def _is_steady(rate_per_s: float, pairs: Sequence[tuple[Sighting, Sighting]]) -> bool:
    """Say whether a variable grows by about as much in equal times: by its mean rate, give or take a factor."""
    stills = sum(after.value == before.value for before, after in pairs)
    if stills > MOST_STILLS_A_RISE * (len(pairs) - stills):
        return False
    return sum(_agrees(rate_per_s, *pair) for pair in pairs) >= STEADY_SHARE * len(pairs)


def _agrees(rate_per_s: float, before: Sighting, after: Sighting) -> bool:
    """Say whether a rate can be that between two sightings: a count is whole, and times are known to a margin."""
    took_s, margin_s = (after.at_ns - before.at_ns) / SECOND_NS, (after.error_ns + before.error_ns) / SECOND_NS
    grown = after.value - before.value
    least, most = (grown - 1) / (took_s + margin_s), (grown + 1) / max(took_s - margin_s, 1e-9)
    return least / STEADY_FACTOR <= rate_per_s <= most * STEADY_FACTOR


def _is_clock(growth: Growth, booted_ns: int) -> bool:
    """Say whether a variable holds a time: it grows too fast, or for too long, or is near the machine's clock."""
    rate_per_s, value = growth.rate_per_s, growth.sightings[-1].value
    if rate_per_s > HIGHEST_RATE_PER_S or abs(value) > rate_per_s * LONGEST_COUNT_S:
        return True
    # Whatever its rate: a deadline may be put off faster than time goes by. And some of what was seen may be torn.
    return any(
        2 * sum(_is_near_clock(sighting, unit, booted_ns) for sighting in growth.sightings) > len(growth.sightings)
        for unit in CLOCK_UNITS
    )


def _is_near_clock(sighting: Sighting, unit: int, booted_ns: int) -> bool:
    return abs(sighting.value / unit - (sighting.at_ns - booted_ns) / SECOND_NS) < CLOCK_MARGIN_S


def _counts_a_bar(variable: Variable) -> bool:
    return variable.name == "n" and is_progress_bar(variable.place.function, variable.place.file)
