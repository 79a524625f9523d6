"""Samples while they are laid into slots: what was seen of a stack in a slot, added up by thread.

Slots widen where they would be too many, and each width divides the next: so they can be merged without the run file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS
from profd.daemon.render.packing import Columns
from profd.daemon.store.rows import IntervalRow
from profd.daemon.store.sums.held import samples_inside
from profd.daemon.store.sums.stored import StackMinuteRow

WIDTHS_MS = (10, 100, 1_000, 10_000, 60_000, 300_000, 600_000, 3_600_000)
TIME_UNIT_NS = 100 * MICROSECOND_NS
"""A hundredth of the usual distance of two samples; finer digits would only be longer."""
MINUTE_MS = 60_000


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


# Entries are lists, as a long run has hundreds of thousands: the last slot that any interval reaches into, then samples
# and nanoseconds, of all and of each part.
_LAST, _SAMPLES, _TIME_NS, _PARTS = 0, 1, 2, 3
_Entry = list[int]
_Entries = dict[tuple[int, int], _Entry]


class Laid:
    """Entries while they are collected: thread → (slot, stack) → entry, in order of time."""

    def __init__(self, origin_ns: int, entry_limit: int, parts: int) -> None:
        self.width_ms = WIDTHS_MS[0]
        self.entry_limit = entry_limit
        self._threads: defaultdict[int, _Entries] = defaultdict(dict)
        self._origin_ns = origin_ns
        self._parts = parts
        self._count = 0

    def add(self, interval: IntervalRow, parts_ns: Sequence[int]) -> None:
        """Take in an interval, with for how long the conditions of each part held meanwhile."""
        width_ns = self.width_ms * MILLISECOND_NS
        since_ns = interval.start_ns - self._origin_ns
        slot, last = since_ns // width_ns, max(since_ns + interval.duration_ns - 1, since_ns) // width_ns
        entry = self._entry(self._threads[interval.thread], (slot, interval.stack))
        entry[_SAMPLES] += interval.samples
        entry[_TIME_NS] += interval.duration_ns
        if last > entry[_LAST]:  # not max: this is done for every interval of a run
            entry[_LAST] = last
        for part, inside_ns in enumerate(parts_ns):
            if inside_ns:
                _add_part(entry, _PARTS + 2 * part, interval, inside_ns)
        if self._count > self.entry_limit and self.width_ms < WIDTHS_MS[-1]:
            self._widen()

    def add_sums(
        self, rows: Iterable[StackMinuteRow], width_ms: int, sums_of: Callable[[StackMinuteRow], tuple[int, ...]]
    ) -> None:
        """Take in sums by so many whole minutes, of which each thread and stack has one, before any interval.

        ``sums_of`` gives their samples and time, of all and of each part.
        """
        self.width_ms = width_ms
        minutes, width_ns = width_ms // MINUTE_MS, width_ms * MILLISECOND_NS
        origin_ns = self._origin_ns + 1
        for row in rows:
            slot = row.minute // minutes
            last = max((row.until_ns - origin_ns) // width_ns, slot)
            self._threads[row.thread][slot, row.stack] = [last, *sums_of(row)]
        self._count = sum(map(len, self._threads.values()))

    def columns(self) -> dict[int, ThreadSlots]:
        """Return what was laid, by thread."""
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
            for (slot, stack), entry in entries.items():
                wide = self._entry(merged, (slot // factor, stack))
                last = max(wide[_LAST], entry[_LAST] // factor)
                wide[:] = [last, *map(sum, zip(wide[_SAMPLES:], entry[_SAMPLES:], strict=True))]
            self._threads[thread] = merged


def _add_part(entry: _Entry, at: int, interval: IntervalRow, inside_ns: int) -> None:
    """Count the part of an interval for which conditions held."""
    whole_ns = interval.duration_ns
    is_whole = inside_ns == whole_ns
    entry[at] += interval.samples if is_whole else samples_inside(interval.samples, whole_ns, inside_ns)
    entry[at + 1] += inside_ns


def _rounded(stacks: Sequence[int], times_ns: Sequence[int]) -> list[int]:
    """Return times in units; what is cut off one goes to the next of its stack, so that sums by stack stay exact."""
    left_ns = dict.fromkeys(stacks, TIME_UNIT_NS // 2)
    found = []
    for stack, time_ns in zip(stacks, times_ns, strict=True):
        units, left_ns[stack] = divmod(time_ns + left_ns[stack], TIME_UNIT_NS)
        found.append(units)
    return found


def _columns(entries: _Entries) -> ThreadSlots:
    # What was read one by one may lie before the sums; in a slot the order is that of time.
    keys = sorted(entries, key=lambda key: key[0])
    slots, stacks = (list(column) for column in zip(*keys, strict=True))
    lasts, *sums = zip(*map(entries.__getitem__, keys), strict=True)
    samples = [list(column) for column in sums[::2]]
    times = [_rounded(stacks, column) for column in sums[1::2]]
    return ThreadSlots(
        steps=[slot - before for slot, before in zip(slots, [0, *slots], strict=False)],
        spans=[last - slot + 1 for last, slot in zip(lasts, slots, strict=True)],
        stacks=stacks,
        samples=samples[0],
        times_100us=times[0],
        parts=[PartColumns(*part) for part in zip(samples[1:], times[1:], strict=True)],
    )
