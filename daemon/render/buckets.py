"""The samples of a run in time buckets of equal length: exact, and small enough for a page.

A sample, with the time that it stands for, belongs to the bucket in which its interval starts, as
``Selection`` counts too. Buckets begin at 10 ms, the precision of the times themselves, and widen
if they would be too many. Each width divides the next, so buckets are merged without the run file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import msgspec

from profd.daemon.analyze.conditions import can_tell, covers_of
from profd.daemon.analyze.profile import parts_while
from profd.daemon.analyze.selection import Condition
from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, MINUTE_NS
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.render.htmlpage import distances
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Rest, StackMinuteRow, count_stack_minutes, stack_minutes
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.stepfunction import (
    IntervalCursor,
    common,
    samples_inside,
)
from profd.daemon.timerange import EVER

WIDTHS_MS = (10, 100, 1_000, 10_000, 60_000, 300_000, 600_000, 3_600_000)
TIME_UNIT_NS = 100 * MICROSECOND_NS
"""A hundredth of the usual distance of two samples; finer digits would only be longer."""

Columns = dict[str, Any]
"""What a thread did, by name.

Entry ``i`` was seen ``samples[i]`` times in stack ``stacks[i]`` (ids of the run file).

``times_100us[i]`` is its time in units of 100 µs. ``steps[i]`` is the distance of its bucket to
that of entry ``i - 1`` (of the first one: to bucket 0), ``spans[i]`` how many buckets it lasted.
``parts`` are the samples and times for which the conditions of ``TimeBuckets.parts`` held.
"""

# Entries are lists, because a long run has hundreds of thousands: the last bucket that any interval
# reaches, then samples and nanoseconds, of all and of each part.
_LAST, _SAMPLES, _TIME_NS, _PARTS = 0, 1, 2, 3
_Entry = list[int]
_Entries = dict[tuple[int, int], _Entry]


class BucketBuilder:
    """Entries while they are collected: thread → (bucket, stack) → entry, in order of time."""

    def __init__(self, origin_ns: int, entry_limit: int, parts: int) -> None:
        self.width_ms, self.entry_limit = WIDTHS_MS[0], entry_limit
        self._threads: defaultdict[int, _Entries] = defaultdict(dict)
        self._origin_ns, self._parts, self._count = origin_ns, parts, 0

    def add(self, interval: IntervalRow, parts_ns: Sequence[int]) -> None:
        """Add an interval, and for how long the conditions of each part held in it."""
        width_ns, whole_ns = self.width_ms * MILLISECOND_NS, interval.duration_ns
        since_ns = interval.start_ns - self._origin_ns
        bucket, last = since_ns // width_ns, max(since_ns + whole_ns - 1, since_ns) // width_ns
        entry = self._entry(self._threads[interval.thread], (bucket, interval.stack))
        entry[_SAMPLES] += interval.samples
        entry[_TIME_NS] += whole_ns
        if last > entry[_LAST]:  # not max: this is done for every interval of a run
            entry[_LAST] = last
        for part, inside_ns in enumerate(parts_ns):
            if inside_ns:
                at, is_whole = _PARTS + 2 * part, inside_ns == whole_ns
                entry[at] += (
                    interval.samples
                    if is_whole
                    else samples_inside(interval.samples, whole_ns, inside_ns)
                )
                entry[at + 1] += inside_ns
        if self._count > self.entry_limit and self.width_ms < WIDTHS_MS[-1]:
            self._widen()

    def add_sums(
        self,
        rows: Iterable[StackMinuteRow],
        width_ms: int,
        sums_of: Callable[[StackMinuteRow], tuple[int, ...]],
    ) -> None:
        """Add sums by so many whole minutes, one for each thread and stack, before any interval.

        ``sums_of`` gives their samples and time, in all and for each part.
        """
        self.width_ms = width_ms
        width_ns = width_ms * MILLISECOND_NS
        minutes = width_ns // MINUTE_NS
        origin_ns = self._origin_ns + 1
        for row in rows:
            bucket = row.minute // minutes
            last = max((row.until_ns - origin_ns) // width_ns, bucket)
            self._threads[row.thread][bucket, row.stack] = [last, *sums_of(row)]
        self._count = sum(map(len, self._threads.values()))

    def columns(self) -> dict[int, Columns]:
        return {thread: _columns(entries) for thread, entries in self._threads.items()}

    def _entry(self, entries: _Entries, key: tuple[int, int]) -> _Entry:
        if key not in entries:
            entries[key] = [0] * (_PARTS + 2 * self._parts)
            self._count += 1
        return entries[key]

    def _widen(self) -> None:
        wider_ms = WIDTHS_MS[WIDTHS_MS.index(self.width_ms) + 1]
        factor, self.width_ms, self._count = wider_ms // self.width_ms, wider_ms, 0
        for thread, entries in self._threads.items():
            merged: _Entries = {}
            for (bucket, stack), entry in entries.items():
                wide = self._entry(merged, (bucket // factor, stack))
                last = max(wide[_LAST], entry[_LAST] // factor)
                wide[:] = [last, *map(sum, zip(wide[_SAMPLES:], entry[_SAMPLES:], strict=True))]
            self._threads[thread] = merged


def _rounded(stacks: Sequence[int], times_ns: Sequence[int]) -> list[int]:
    """Return times in units, the rest carried over in each stack, so that its sum stays exact."""
    left_ns = dict.fromkeys(stacks, TIME_UNIT_NS // 2)
    found = []
    for stack, time_ns in zip(stacks, times_ns, strict=True):
        units, left_ns[stack] = divmod(time_ns + left_ns[stack], TIME_UNIT_NS)
        found.append(units)
    return found


def _columns(entries: _Entries) -> Columns:
    # What was read one by one may lie before the sums; in a bucket the order is that of time.
    keys = sorted(entries, key=lambda key: key[0])
    buckets, stacks = (list(column) for column in zip(*keys, strict=True))
    lasts, *sums = zip(*map(entries.__getitem__, keys), strict=True)
    samples = [list(column) for column in sums[::2]]
    times = [_rounded(stacks, column) for column in sums[1::2]]
    whole, *parts = (
        {"samples": each, "times_100us": spent} for each, spent in zip(samples, times, strict=True)
    )
    spans = [last - bucket + 1 for last, bucket in zip(lasts, buckets, strict=True)]
    return {"steps": distances(buckets), "spans": spans, "stacks": stacks, **whole, "parts": parts}


ASKED_FOR = ("gpu-idle", "on-cpu")
"""The conditions that the page has a button for."""
Part = tuple[str, ...]
"""Conditions that hold together; see ``conditions``."""


class TimeBuckets(msgspec.Struct, frozen=True):
    """The samples of a run; bucket 0 starts at ``RunInfo.started_ns``.

    ``parts`` are the conditions that can be asked for: each with readings in the run, and all of
    them together.
    """

    width_ms: int
    parts: list[Part]
    threads: dict[int, Columns]


def take_buckets(
    reader: RunReader, entry_limit: int = 400_000, one_by_one: int = 2_000_000
) -> TimeBuckets:
    """Put all samples of a run into the narrowest buckets with at most ``entry_limit`` entries.

    The limit is about 1.5 MB once compressed. For a run with more than ``one_by_one`` samples its
    sums by the minute count, if it has them, and buckets last a minute or more: to read all samples
    would take minutes.
    """
    parts: list[Part] = [(name,) for name in ASKED_FOR if can_tell(reader, name)]
    if len(parts) > 1:
        parts.append(tuple(name for (name,) in parts))
    builder = BucketBuilder(reader.info.started_ns, entry_limit, len(parts))
    rests = [Rest(frozenset(reader.threads), EVER)]
    if reader.recorded().samples > one_by_one:
        rests = _add_sums(reader, builder, parts)
    for rest in rests:
        _add_intervals(reader, builder, parts, rest)
    return TimeBuckets(builder.width_ms, parts, builder.columns())


def _add_sums(reader: RunReader, builder: BucketBuilder, parts: Sequence[Part]) -> list[Rest]:
    """Add the sums by the minute, and return the time without them."""
    found = reader.rollups.split(EVER, reader.threads)
    if any(one.minutes for one in found):
        sums_of = parts_while([(), *((Condition(name) for name in names) for names in parts)])
        minute_ms = MINUTE_NS // MILLISECOND_NS
        for width_ms in WIDTHS_MS[WIDTHS_MS.index(minute_ms) :]:
            together = width_ms // minute_ms
            if together > 1 or count_stack_minutes(reader) <= builder.entry_limit:
                rows = [
                    row
                    for one in found
                    for row in stack_minutes(reader, one.threads, one.minutes, together)
                ]
                if len(rows) <= builder.entry_limit:
                    break
        builder.add_sums(rows, width_ms, sums_of)
    return [Rest(one.threads, rest) for one in found for rest in one.rest]


def _add_intervals(
    reader: RunReader, builder: BucketBuilder, parts: Sequence[Part], rest: Rest
) -> None:
    ends_in = rest.time.longer(RECORDING.longest_ns)
    covers = {
        name: covers_of(reader, (Condition(name),), rest.threads, ends_in)
        for name in {name for part in parts for name in part}
    }
    # All conditions together hold while each of them does.
    cursors = {
        thread: [
            IntervalCursor(reduce(common, (covers[name][thread] for name in part)))
            for part in parts
        ]
        for thread in rest.threads
    }
    for interval in reader.intervals(rest.time, rest.threads):
        held = cursors[interval.thread]
        builder.add(
            interval, [cursor.between(interval.start_ns, interval.end_ns) for cursor in held]
        )
