"""How many steps were counted in a run, and how fast it makes them.

Time without counts does not show steps, such as that before the first count of a recording. A phase
that comes once a step shows as many steps as it has visits. Some visits fall between two samples
and are missed, so that two steps look like one: the next visit then comes after two or three times
the usual distance, and counts as so many. A step that took so long by itself looks the same, so all
added steps may be wrong. If visits come at no pace, the steps are unknown.

Steps are also unknown if the training goes on in a loop without a counter, or if the samples show
the optimizer at work more often, or less often, than its counter says. All readers of counts
ask ``counts_of`` for them, or ``lost_ranges`` for the times without.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.phases import COMPILE, ONCE_A_STEP, PhaseIndex, training_range
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import points_of
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import OPTIMIZER_STEPS, STEP_CHANGES, EventKind
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT, STEP_ERROR
from profd.daemon.store.rows import EventRow, FrameRow, PointRow, ProcessRow
from profd.daemon.timerange import EVER, TimeRange


class Steps(msgspec.Struct, frozen=True):
    """How fast a run steps, and how that is known; None if it is not.

    ``count`` steps were counted: from the first count to the last, in a launched run from its
    beginning on. Their rate is ``per_s``, off by at most ``per_s_error``. ``count_error`` is how
    many more or fewer there may have been. ``source`` is what was counted: the loop counter with
    its place, another source, or the cycles of a phase. ``why_unknown`` is a sentence if steps were
    counted, but those of the run, or also their rate, are unknown. ``unseen`` is how many more may
    have been made before the process was known to train.
    """

    per_s: float | None = None
    count: int | None = None
    source: str | None = None
    per_s_error: float | None = None
    count_error: int | None = None
    why_unknown: str | None = None
    unseen: int = 0


def part_of_step_s(share: float, startup: float, per_s: float | None) -> float | None:
    """Return the seconds of a step in what takes a share of the time, None if steps are unknown.

    Startup, which takes another share, is no part of any step.
    """
    return share / (1 - startup) / per_s if per_s and startup < 1 else None


class Lost(NamedTuple):
    """When nothing counts the steps of a process, and why.

    ``is_counted`` says that those made meanwhile are counted all the same: by a later program's own
    number.
    """

    time: TimeRange
    why: str
    is_counted: bool = False


class Counts(NamedTuple):
    """The counts of a process, in pieces.

    It is unknown how many steps were made between two pieces, and ``why`` says why; None if all of
    the known training is counted.
    """

    pieces: list[list[PointRow]]
    why: str | None = None

    @property
    def longest(self) -> list[PointRow]:
        return max(self.pieces, key=len, default=[])


def lost_ranges(events: Iterable[EventRow], process: int) -> list[Lost]:
    """Return when the training of a process may go on without being counted, in order of time."""
    changes = [one for one in events if one.process == process and one.kind in STEP_CHANGES]
    # A launcher becomes another program before it trains.
    changes = list(itertools.dropwhile(lambda one: one.kind is EventKind.EXEC, changes))
    counted_ns = max((one.at_ns for one in changes if one.kind is EventKind.STEP_SOURCE), default=0)
    cuts_ns = [one.at_ns for one in changes]
    times = map(TimeRange, cuts_ns, [*cuts_ns[1:], EVER.to_ns])
    return [
        Lost(time, one.text, one.kind is EventKind.EXEC and one.at_ns < counted_ns)
        for one, time in zip(changes, times, strict=True)
        if one.kind is not EventKind.STEP_SOURCE
    ]


def counts_of(reader: RunReader, process: int, selection: Selection) -> Counts:
    """Return the counts in a selection's range of time.

    There are none if less than half of its training is counted.
    """
    if reader.find_series(STEP_COUNT, process) is None:
        return Counts([])  # a run may have thousands of workers, and tens of thousands of events
    points = points_of(reader, STEP_COUNT, process, selection)
    lost = lost_ranges(reader.events(*STEP_CHANGES), process)
    if not lost:
        return Counts([points] if points else [])
    pieces = _pieces(points, lost)
    whole = msgspec.structs.replace(selection, processes=frozenset({process}))
    training = training_range(reader, whole, PhaseIndex(reader)) or TimeRange(0, 0)
    missed = [one for one in lost if one.time.overlaps(training) and not one.is_counted]
    counted_ns = sum(piece[-1].at_ns - piece[0].at_ns for piece in pieces)
    missed_ns = sum(one.time.within(training).length_ns for one in missed)
    return Counts(pieces if counted_ns >= missed_ns else [], missed[-1].why if missed else None)


def _pieces(points: Sequence[PointRow], lost: Sequence[Lost]) -> list[list[PointRow]]:
    """Return the counts between the times without any."""
    begins = [EVER.from_ns, *(one.time.to_ns for one in lost)]
    ends = [*(one.time.from_ns for one in lost), EVER.to_ns]
    pieces = (
        [point for point in points if begin_ns <= point.at_ns <= end_ns]
        for begin_ns, end_ns in zip(begins, ends, strict=True)
    )
    return list(filter(None, pieces))


class Seen(NamedTuple):
    """An interval of a thread, and whether the phase was on."""

    start_ns: int
    is_inside: bool


def count_cycles(intervals: Iterable[Seen], source: str = "cycles") -> Steps | None:
    """Return the visits of a phase as steps, by the intervals of a thread in order of time.

    None if there are too few visits, if too many are missed, or if they come at no pace: then the
    samples are further apart than the steps.
    """
    starts = _visits(intervals)
    if len(starts) < 20:
        return None
    lengths = [after - before for before, after in itertools.pairwise(starts)]
    # If steps are shorter than the distance of samples, what is seen in one says nothing of the
    # next, and visits come by chance: many follow on the one before much sooner than usual, the
    # soonest quarter within 0.57 of the median. Later ones may have missed one.
    soonest, middle, _ = statistics.quantiles(lengths, n=4)
    if soonest < 0.72 * middle:
        return None
    step_ns, steps = _divided(lengths, middle)
    # Three of four distances have to be a whole number of steps, give or take 0.3 of one.
    odd = sum(
        abs(length / step_ns - number) > 0.3 for length, number in zip(lengths, steps, strict=True)
    )
    made = [max(number, 1) for number in steps]  # what comes after a pause is one step on
    added = sum(made) - len(made)
    if odd > len(lengths) / 4 or added > len(made) / 2:
        return None
    # Visits before the first and after the last may have been missed too.
    error, took_s = 1 + added + math.sqrt(odd) + 0.1 * odd, (starts[-1] - starts[0]) / SECOND_NS
    return Steps(sum(made) / took_s, 1 + sum(made), source, (1 + error) / took_s, math.ceil(error))


def _visits(intervals: Iterable[Seen]) -> list[int]:
    """Return when a thread entered a phase; nothing if it never left it."""
    starts: list[int] = []
    was_inside = has_left = False
    for seen in intervals:
        if seen.is_inside and not was_inside:
            starts.append(seen.start_ns)
        has_left = has_left or (bool(starts) and not seen.is_inside)
        was_inside = seen.is_inside
    return starts if has_left else []


def _divided(lengths: Sequence[int], step_ns: float) -> tuple[float, list[int]]:
    """Return how long a step is, and how many steps each distance of visits is.

    A pause has 0 steps: a distance longer than visits are missed in a row once in twenty runs.
    ``step_ns`` is the first guess.
    """
    steps: list[int] = []
    for _ in range(4):
        steps = [max(round(length / step_ns), 1) for length in lengths]
        missed = sum(number > 1 for number in steps) / len(steps)
        most = 1
        if 0 < missed < 1:
            most += math.floor(math.log(0.05 / len(steps)) / math.log(missed))
        steps = [number if number <= most else 0 for number in steps]
        stepping_ns = sum(itertools.compress(lengths, steps))
        step_ns = stepping_ns / max(sum(steps), 1)
    return step_ns, steps


def take_steps(reader: RunReader, selection: Selection, phases: PhaseIndex) -> Steps:
    """Return the steps of a selection's first trainer that shows any: ranks step together."""
    steps = measure_steps(reader, selection, phases)
    if steps.per_s is None or (steps.per_s_error or 0.0) < steps.per_s / 2:
        return steps
    return Steps(
        why_unknown=f"steps by {steps.source or 'the loop'} are too few, or too unsure, for a rate"
    )


def measure_steps(reader: RunReader, selection: Selection, phases: PhaseIndex) -> Steps:
    """Return the steps even if their rate is unsure, for callers that do not show them."""
    processes = sorted(selection.trainers(reader), key=attrgetter("by_rank"))
    counted = (_counted(reader, process, selection, phases) for process in processes)
    by_cycles = (_by_cycles(reader, process, selection, phases) for process in processes)
    return next(
        (steps for steps in itertools.chain(counted, by_cycles) if steps is not None), Steps()
    )


def _counted(
    reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex
) -> Steps | None:
    counts = counts_of(reader, process.id, selection)
    ranges = [TimeRange(piece[0].at_ns, piece[-1].at_ns) for piece in counts.pieces]
    took_s = sum(time.length_ns for time in ranges) / SECOND_NS
    if not took_s:
        return Steps(why_unknown=counts.why) if counts.why else None
    first, last = counts.pieces[0][0], counts.pieces[-1][-1]
    made = sum(piece[-1].value - piece[0].value for piece in counts.pieces)
    stored = points_of(reader, STEP_ERROR, process.id, selection)
    error = _error_within(ranges, stored)
    # A later program counts on from what was counted before.
    error_of_count = _error_within([TimeRange(first.at_ns, last.at_ns)], stored)
    before, unseen = 0.0, 0
    if selection.from_ns is None and reader.info.mode == "launched":
        before = _made_before(counts, first.at_ns - process.seen_ns)
        # A process that a script starts to train has an ordinal, and is known some seconds later:
        # the loop seen then may not be its first one.
        if process.ordinal is not None:
            late_s = (first.at_ns - process.seen_ns) / SECOND_NS
            unseen = max(math.ceil(late_s * made / took_s - before), 0)
    # The part that was done, on average, of the step in which a counter was read, if that step was
    # surely finished. Nearly all counters say how many steps are done: those of a loop over a
    # range, and those that go up at a step's end.
    begun = 0.5 if process.exit_code == 0 and selection.to_ns is None else 0.0
    source = _source_at(reader, process.id, last.at_ns)
    if why := _contradiction(reader, process, phases, counts.pieces[-1], error):
        return Steps(why_unknown=f"{source} {why}")
    count = None if counts.why else round(before + last.value - first.value + begun)
    count_error = None if counts.why else math.ceil(error_of_count)
    return Steps(made / took_s, count, source, error / took_s, count_error, counts.why, unseen)


def _contradiction(
    reader: RunReader,
    process: ProcessRow,
    phases: PhaseIndex,
    piece: Sequence[PointRow],
    error: float,
) -> str | None:
    """Say why a count cannot be true: by the visits of the optimizer in its last half minute.

    There were at least as many steps as visits: of one line, as a step may call several optimizers.
    There were hardly more if visits, and the times between, are mostly more than four samples, and
    nearly all of the time was sampled.
    """
    if (_source_at(reader, process.id, piece[-1].at_ns) or "").startswith(OPTIMIZER_STEPS):
        return None
    first = next(point for point in piece if point.at_ns >= piece[-1].at_ns - 30 * SECOND_NS)
    time, made = TimeRange(first.at_ns, piece[-1].at_ns), piece[-1].value - first.value
    threads = [row.id for row in reader.threads.values() if row.process == process.id]
    visits, samples, last, seen_ns = Counter[FrameRow](), Counter[bool](), None, 0
    for row in reader.intervals(time, [one for one in threads if reader.threads[one].is_main]):
        line = phases.update_line(row.stack)
        samples[line is None] += row.samples
        seen_ns += row.duration_ns
        if line is not None and line != last:
            visits[line] += 1
        last = line
    called = max(visits.values(), default=0)
    is_clear = min(samples[True], samples[False]) > 4 * visits.total()
    is_clear = is_clear and seen_ns > 0.9 * time.length_ns
    if called <= 1.25 * (made + error) + 3 and not (is_clear and made - error > 1.25 * called + 3):
        return None
    return f"shows {made:.0f} steps while the samples show {called} calls of the optimizer"


def _error_within(ranges: Iterable[TimeRange], stored: Sequence[PointRow]) -> float:
    """Return by how many steps the counts of some ranges may be off.

    A stored error is against the very first count. If it became less, the count was mended by as
    much.
    """
    inside = ([one.value for one in stored if low <= one.at_ns <= high] for low, high in ranges)
    return sum(1 + (abs(errors[-1] - errors[0]) if errors else 0.0) for errors in inside)


def _made_before(counts: Counts, since_seen_ns: int) -> float:
    """Return how many steps were made before the first count, so long after the process was seen.

    A loop that goes on from a checkpoint begins with more steps than it can have made, also at a
    higher pace than its usual one. Pauses have no pace, and a count that is mended jumps once.
    """
    pairs = itertools.chain.from_iterable(map(itertools.pairwise, counts.pieces))
    paces = [
        (two.value - one.value) / (two.at_ns - one.at_ns)
        for one, two in pairs
        if two.value > one.value
    ]
    first = counts.pieces[0][0].value
    most = 1 + 1.5 * statistics.median_high(paces or [0.0]) * since_seen_ns
    return first if 0 <= first <= most else 0.0


def _source_at(reader: RunReader, process: int, at_ns: int) -> str | None:
    """Return what was counted at a moment; a source is named a little before its first count."""
    source = None
    for event in reader.events(EventKind.STEP_SOURCE):
        if event.process == process and (source is None or event.at_ns <= at_ns):
            source = event.text
    return source


def _by_cycles(
    reader: RunReader, process: ProcessRow, selection: Selection, phases: PhaseIndex
) -> Steps | None:
    threads = [row.id for row in reader.main_threads() if row.process == process.id]
    whole = Selection(*selection.time_in(reader), frozenset({process.id}))
    if training_range(reader, whole, phases) is None:
        return None  # what only evaluates loads its data as evenly
    found = []
    for visited in ONCE_A_STEP:
        seen = (
            Seen(row.start_ns, phases.of_stack(row.stack) in (*visited, COMPILE))
            for row in reader.intervals(whole.time, threads)
        )
        found.append(count_cycles(seen, f"cycles of {' and '.join(visited)}"))
    return min(filter(None, found), key=lambda steps: steps.per_s_error or 0, default=None)
