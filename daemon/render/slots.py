"""The samples of a run, laid into slots of equal length: small enough for a page, exact for any range of whole slots.

A sample, with the time that it stands for, belongs to the slot in which its interval starts, as ``Selection`` counts
too. Slots begin at 10 ms, the precision of the times themselves, and widen when a long run would not fit otherwise.
Nothing here knows of HTML.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce

import msgspec

from profd.daemon.analyze.conditions import can_tell, covers_of, within
from profd.daemon.analyze.selection import Condition
from profd.daemon.analyze.totals import parts_while
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.laid import MINUTE_MS, WIDTHS_MS, Laid, ThreadSlots
from profd.daemon.store.reader import RunReader
from profd.daemon.store.sums.cover import Cover, common
from profd.daemon.store.sums.split import Rest
from profd.daemon.store.sums.stored import count_stack_minutes
from profd.daemon.store.sums.walks import Walk

ENTRY_LIMIT = 400_000
"""About 1.5 MB once compressed."""
ASKED_FOR = ("gpu-idle", "on-cpu")
"""The conditions that the page has a button for."""
READ_ONE_BY_ONE = 2_000_000
"""Of a run with more samples the sums by the minute are taken, where it has them: to read it all would take minutes."""
_READ_AT_ONCE_NS = 300 * SECOND_NS


Part = tuple[str, ...]
"""Conditions that hold together; see ``conditions``."""


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
    laid = Laid(reader.info.started_ns, entry_limit, len(parts))
    everything = [Rest(frozenset(reader.threads), None, None)]
    is_long = reader.recorded().samples > one_by_one
    rest = _lay_sums(reader, laid, parts) if is_long else everything
    for one in rest:
        _lay_intervals(reader, laid, parts, one)
    return Slots(laid.width_ms, parts, laid.columns())


def _lay_sums(reader: RunReader, laid: Laid, parts: Sequence[Part]) -> list[Rest]:
    """Lay the sums by the minute into slots, and return what has to be read beside them."""
    found = reader.sums.split(None, None, reader.threads)
    if not any(one.minutes for one in found):
        return [rest for one in found for rest in one.rest]
    sums_of = parts_while([(), *((Condition(name) for name in names) for names in parts)])
    for width_ms in WIDTHS_MS[WIDTHS_MS.index(MINUTE_MS) :]:
        together = width_ms // MINUTE_MS
        if together > 1 or count_stack_minutes(reader) <= laid.entry_limit:
            rows = [row for one in found for row in reader.sums.by_minute(one, together)]
            if len(rows) <= laid.entry_limit:
                break
    laid.add_sums(rows, width_ms, sums_of)
    return [rest for one in found for rest in one.rest]


def _lay_intervals(reader: RunReader, laid: Laid, parts: Sequence[Part], rest: Rest) -> None:
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
