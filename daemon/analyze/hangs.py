"""The hangs of a run, as a summary has them: when, why, and who stood where and waited for what."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import HangGroup, Stand
from profd.daemon.store.rows import HangRow


class HangPlace(msgspec.Struct, frozen=True):
    """A stack in which threads stood; ``frames`` are ``name (file:line)`` from the root to the leaf."""

    frames: tuple[str, ...]
    stands: tuple[Stand, ...]


class Hang(msgspec.Struct, frozen=True):
    """A time without progress, in seconds from the start of the run.

    ``since_s`` is when it began, ``told_s`` when profd was sure of it, ``ended_s`` when the run went on; None where it
    did not. ``cause`` is its group of causes, as docs/hangs.md lists them.
    """

    since_s: float
    told_s: float
    ended_s: float | None
    cause: str
    text: str
    places: tuple[HangPlace, ...]
    facts: tuple[str, ...]


def take_hangs(reader: RunReader, selection: Selection) -> tuple[Hang, ...]:
    """Return the hangs that were told in the selection's range of time, in order."""
    from_ns, to_ns = selection.from_ns or 0, selection.to_ns
    rows = [row for row in reader.hangs() if row.at_ns >= from_ns and (to_ns is None or row.since_ns < to_ns)]
    return tuple(_hang(row, reader.info.started_ns) for row in rows)


def _hang(row: HangRow, started_ns: int) -> Hang:
    return Hang(
        since_s=(row.since_ns - started_ns) / SECOND_NS,
        told_s=(row.at_ns - started_ns) / SECOND_NS,
        ended_s=None if row.ended_ns is None else (row.ended_ns - started_ns) / SECOND_NS,
        cause=row.cause,
        text=row.text,
        places=tuple(map(_place, row.report.groups)),
        facts=row.report.facts,
    )


def _place(group: HangGroup) -> HangPlace:
    frames = tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in group.frames)
    return HangPlace(frames, group.stands)
