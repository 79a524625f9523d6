"""The samples of a run, laid into slots of equal length: small enough for a page, exact for any range of whole slots.

A sample, with the time that it stands for, belongs to the slot in which its interval starts, as ``Selection`` counts
too. Slots begin at 10 ms, the precision of the times themselves, and widen when a long run would not fit otherwise.
Nothing here knows of HTML.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce

import msgspec

from profd.daemon.analyze.conditions import can_tell, covers_of, within
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.summed import Rest, part_while, sums_by_minute, told
from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from profd.daemon.render.packing import Columns
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.sums.cover import Cover, common
from profd.daemon.store.sums.held import samples_inside
from profd.daemon.store.sums.stored import StackMinuteRow, count_stack_minutes
from profd.daemon.store.sums.walks import Walk

WIDTHS_MS = (10, 100, 1_000, 10_000, 60_000, 300_000, 600_000, 3_600_000)
"""Each divides the next, so that slots can be merged without touching the run file again."""
ENTRY_LIMIT = 400_000
"""About 1.5 MB once compressed."""
TIME_UNIT_NS = 100 * MICROSECOND_NS
"""A hundredth of the usual distance of two samples; finer digits would only be longer."""
ASKED_FOR = ("gpu-idle", "on-cpu")
"""The conditions that the page has a button for."""
MINUTE_MS = 60_000
READ_ONE_BY_ONE = 2_000_000
"""Of a run with more samples the sums by the minute are taken, where it has them: to read it all would take minutes."""
_READ_AT_ONCE_NS = 300 * SECOND_NS


Part = tuple[str, ...]
"""Conditions that hold together; see ``conditions``."""


class PartColumns(Columns, frozen=True):
    """Of each entry the part for which some conditions held; see ``ThreadSlots``."""

    samples: list[int]
    times_100us: list[int]


class ThreadSlots(Columns, frozen=True):
    """What a thread did, as columns: entry ``i`` was seen ``samples[i]`` times in stack ``stacks[i]``.

    ``times_100us[i]`` is for how long, in units of 100 µs. ``steps[i]`` is the distance of its slot to that of entry
    ``i - 1`` (of the first one: to slot 0), ``spans[i]`` how many slots it lasted. Stacks are ids of the run file.
    ``parts`` are those of ``Slots.parts``.
    """

    steps: list[int]
    spans: list[int]
    stacks: list[int]
    samples: list[int]
    times_100us: list[int]
    parts: list[PartColumns]


class Slots(msgspec.Struct, frozen=True):
    """The samples of a run; slot 0 starts at ``RunInfo.started_ns``.

    ``parts`` are the conditions that can be asked for: each that the run can tell, and all of them together.
    """

    width_ms: int
    parts: list[Part]
    threads: dict[int, ThreadSlots]


def take_slots(reader: RunReader, entry_limit: int = ENTRY_LIMIT, one_by_one: int = READ_ONE_BY_ONE) -> Slots:
    """Lay all samples of a run into the narrowest slots that need no more than ``entry_limit`` entries.

    Slots of a run with more than ``one_by_one`` samples are a minute long or more.
    """
    parts = _parts(reader)
    laid = _Laid(reader.info.started_ns, entry_limit, len(parts))
    everything = [Rest(frozenset(reader.threads), None, None)]
    is_long = sum(recording.samples for recording in reader.recordings()) > one_by_one
    rest = _lay_sums(reader, laid, parts) if is_long else everything
    for one in rest:
        _lay_intervals(reader, laid, parts, one)
    columns = {thread: _columns(laid.threads[thread], len(parts)) for thread in laid.threads}
    return Slots(laid.width_ms, parts, columns)


def _lay_sums(reader: RunReader, laid: _Laid, parts: Sequence[Part]) -> list[Rest]:
    """Lay the sums by the minute into slots, and return what has to be read beside them."""
    held = [part_while(Condition(name) for name in names) for names in parts]
    found = told(reader, Selection(), frozenset(reader.threads))
    if not any(one.minutes for one in found):
        return [rest for one in found for rest in one.rest]
    for laid.width_ms in WIDTHS_MS[WIDTHS_MS.index(MINUTE_MS) :]:
        together = laid.width_ms // MINUTE_MS
        if together > 1 or count_stack_minutes(reader) <= laid.entry_limit:
            rows = [row for one in found for row in sums_by_minute(reader, one, together)]
            if len(rows) <= laid.entry_limit:
                break
    for row in rows:
        laid.add_sum(row, [part(row) for part in held])
    return [rest for one in found for rest in one.rest]


def _lay_intervals(reader: RunReader, laid: _Laid, parts: Sequence[Part], rest: Rest) -> None:
    """Lay the intervals of some threads and of a range of time into slots, one by one."""
    info = reader.info
    first_ns = info.started_ns if rest.from_ns is None else rest.from_ns
    last_ns = info.end_ns if rest.to_ns is None else rest.to_ns
    covers = _covers(reader, parts, rest)
    walks = {thread: [Walk(cover[thread]) for cover in covers] for thread in rest.threads}
    edges = [rest.from_ns, *range(first_ns + _READ_AT_ONCE_NS, last_ns, _READ_AT_ONCE_NS), rest.to_ns]
    for from_ns, to_ns in itertools.pairwise(edges):
        for interval in reader.intervals(from_ns, to_ns, rest.threads):
            end_ns = interval.start_ns + interval.duration_ns
            laid.add(interval, [walk.between(interval.start_ns, end_ns) for walk in walks[interval.thread]])


def _parts(reader: RunReader) -> list[Part]:
    """Return the conditions that a run can tell, alone and together."""
    found = [(name,) for name in ASKED_FOR if can_tell(reader, name)]
    return [*found, tuple(name for (name,) in found)] if len(found) > 1 else list(found)


def _covers(reader: RunReader, parts: Sequence[Part], rest: Rest) -> list[dict[int, Cover]]:
    """Return of each part when it held, by thread; all together is what the others have in common."""
    time = within(rest.from_ns, rest.to_ns)
    alone: dict[Part, dict[int, Cover]] = {
        part: covers_of(reader, (Condition(part[0]),), rest.threads, time) for part in parts if len(part) == 1
    }
    if not alone:
        return []
    together = {thread: reduce(common, [cover[thread] for cover in alone.values()]) for thread in rest.threads}
    return [alone.get(part, together) for part in parts]


class _Entry:
    """What is known of one stack in one slot: samples, time, and the last slot that an interval of it reaches into.

    ``part_samples`` and ``parts_ns`` are those of the parts, in their order.
    """

    __slots__ = ("last", "part_samples", "parts_ns", "samples", "time_ns")

    def __init__(self, parts: int) -> None:
        self.samples = self.time_ns = self.last = 0
        self.part_samples = [0] * parts
        self.parts_ns = [0] * parts

    def add(self, interval: IntervalRow, parts_ns: Sequence[int], last: int) -> None:
        self.samples += interval.samples
        self.time_ns += interval.duration_ns
        if last > self.last:  # not max: this is done for every interval of a run
            self.last = last
        for part, inside_ns in enumerate(parts_ns):
            if inside_ns:
                whole_ns = interval.duration_ns
                part_samples = interval.samples
                if inside_ns != whole_ns:
                    part_samples = samples_inside(part_samples, whole_ns, inside_ns)
                self.part_samples[part] += part_samples
                self.parts_ns[part] += inside_ns

    def add_sum(self, row: StackMinuteRow, parts: Sequence[tuple[int, int]], last: int) -> None:
        self.samples += row.samples
        self.time_ns += row.duration_ns
        self.last = max(self.last, last)
        for part, (samples, inside_ns) in enumerate(parts):
            self.part_samples[part] += samples
            self.parts_ns[part] += inside_ns

    def merge(self, other: _Entry, last: int) -> None:
        self.samples += other.samples
        self.time_ns += other.time_ns
        self.last = max(self.last, last)
        for part, inside_ns in enumerate(other.parts_ns):
            self.part_samples[part] += other.part_samples[part]
            self.parts_ns[part] += inside_ns


_Entries = dict[tuple[int, int], _Entry]


class _Laid:
    """Entries while they are collected: thread → (slot, stack) → entry, in order of time."""

    def __init__(self, origin_ns: int, entry_limit: int, parts: int) -> None:
        self.width_ms = WIDTHS_MS[0]
        self.threads: defaultdict[int, _Entries] = defaultdict(dict)
        self._origin_ns = origin_ns
        self.entry_limit = entry_limit
        self._parts = parts
        self._entries = 0

    def add(self, interval: IntervalRow, parts_ns: Sequence[int]) -> None:
        width_ns = self.width_ms * MILLISECOND_NS
        since_ns = interval.start_ns - self._origin_ns
        slot, last = since_ns // width_ns, max(since_ns + interval.duration_ns - 1, since_ns) // width_ns
        entry = self._entry(self.threads[interval.thread], (slot, interval.stack))
        entry.add(interval, parts_ns, last)
        if self._entries > self.entry_limit and self.width_ms < WIDTHS_MS[-1]:
            self._widen()

    def add_sum(self, row: StackMinuteRow, parts: Sequence[tuple[int, int]]) -> None:
        width_ns = self.width_ms * MILLISECOND_NS
        slot = row.minute * MINUTE_MS // self.width_ms
        last = max((row.until_ns - 1 - self._origin_ns) // width_ns, slot)
        self._entry(self.threads[row.thread], (slot, row.stack)).add_sum(row, parts, last)

    def _entry(self, entries: _Entries, key: tuple[int, int]) -> _Entry:
        if key not in entries:
            entries[key] = _Entry(self._parts)
            self._entries += 1
        return entries[key]

    def _widen(self) -> None:
        wider_ms = WIDTHS_MS[WIDTHS_MS.index(self.width_ms) + 1]
        factor, self.width_ms, self._entries = wider_ms // self.width_ms, wider_ms, 0
        for thread, entries in self.threads.items():
            merged: _Entries = {}
            for (slot, stack), entry in entries.items():
                self._entry(merged, (slot // factor, stack)).merge(entry, entry.last // factor)
            self.threads[thread] = merged


def _columns(entries: _Entries, parts: int) -> ThreadSlots:
    # What was read one by one may lie before the sums.
    ordered = sorted(entries.items(), key=lambda item: item[0][0])
    slots = [slot for (slot, _), _ in ordered]
    found = [entry for _, entry in ordered]
    return ThreadSlots(
        steps=[slot - before for slot, before in zip(slots, [0, *slots], strict=False)],
        spans=[entry.last - slot + 1 for slot, entry in zip(slots, found, strict=True)],
        stacks=[stack for (_, stack), _ in ordered],
        samples=[entry.samples for entry in found],
        times_100us=[_in_units(entry.time_ns) for entry in found],
        parts=[
            PartColumns(
                [entry.part_samples[part] for entry in found], [_in_units(entry.parts_ns[part]) for entry in found]
            )
            for part in range(parts)
        ],
    )


def _in_units(time_ns: int) -> int:
    return (time_ns + TIME_UNIT_NS // 2) // TIME_UNIT_NS
