"""What is to be removed of the runs that are kept: what is too old, then the oldest until the rest is small enough.

Of a run its detail goes first and its report later; the report of an incident goes last. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.host.configuration import Retention

DETAIL, REPORT = "detail", "report"
_HOUR_NS = 3600 * SECOND_NS


class Kept(msgspec.Struct, frozen=True):
    """What is left of a run that has ended, in bytes."""

    run_id: str
    ended_ns: int
    is_incident: bool
    detail_bytes: int
    report_bytes: int


class Removal(msgspec.Struct, frozen=True):
    """A part of a run that is to be removed: DETAIL or REPORT."""

    run_id: str
    part: str


def removals(
    kept: Sequence[Kept], retention: Retention, now_ns: int, live_bytes: int = 0, most_old: int | None = None
) -> list[Removal]:
    """Return what is to be removed, in this order.

    ``live_bytes`` are those of runs that are still written; ``most_old`` is of how many runs something may go for their
    age, of all where it is None.
    """
    oldest_first = sorted(kept, key=lambda one: one.ended_ns)
    old = [parts for one in oldest_first if (parts := list(_too_old(one, retention, now_ns)))]
    gone = [removal for parts in old[:most_old] for removal in parts]
    sizes = {Removal(one.run_id, DETAIL): one.detail_bytes for one in oldest_first}
    sizes |= {Removal(one.run_id, REPORT): one.report_bytes for one in oldest_first}
    held = live_bytes + sum(size for part, size in sizes.items() if part not in gone)
    for part in _in_order(oldest_first):
        if held <= retention.max_bytes:
            break
        if sizes[part] and part not in gone:
            gone.append(part)
            held -= sizes[part]
    return gone


def _too_old(one: Kept, retention: Retention, now_ns: int) -> Iterator[Removal]:
    hours = (now_ns - one.ended_ns) / _HOUR_NS
    if one.detail_bytes and hours > retention.detail_hours:
        yield Removal(one.run_id, DETAIL)
    report_hours = retention.incident_hours if one.is_incident else retention.report_hours
    if one.report_bytes and hours > max(report_hours, retention.detail_hours):
        yield Removal(one.run_id, REPORT)


def _in_order(oldest_first: Sequence[Kept]) -> Iterator[Removal]:
    """Yield all parts in the order in which they are given up."""
    yield from (Removal(one.run_id, DETAIL) for one in oldest_first)
    yield from (Removal(one.run_id, REPORT) for one in oldest_first if not one.is_incident)
    yield from (Removal(one.run_id, REPORT) for one in oldest_first if one.is_incident)
