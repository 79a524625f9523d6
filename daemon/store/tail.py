"""The living part of a run file that grows, for whoever looks again and again at next to no cost.

Unlike a ``RunReader`` it reads no row twice and remembers nothing of processes that ended, so a run of weeks with new
workers every minute costs as much at its end as at its start. The file is open only during a look: a recorder that
closes its run finds nobody in it. Belongs to one thread at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.rows import FrameRow, RunInfo, SeriesRow, StackRow, Time
from profd.daemon.store.tailfile import IdleMinute, StackTime, TailFile

LINGER_NS = 30 * SECOND_NS
"""For so long a training process is remembered after its end: what was recorded of it last is written later."""


OfStack = TypeVar("OfStack", StackTime, IdleMinute)


class Member(msgspec.Struct, frozen=True):
    """A process of the run, without what no number depends on; see ``ProcessRow``."""

    id: int
    role: str
    rank: int | None
    seen_ns: Time
    ended_ns: Time | None


class MainThread(msgspec.Struct, frozen=True):
    """The main thread of a process."""

    id: int
    process: int


class RunTail:
    """What is known of a run after the last look at it."""

    def __init__(self, path: Path, series: Collection[str]) -> None:
        """Begin to follow ``path``; of series those of these names. Raises RunUnreadable where it is no run file."""
        self.path = path
        self.members: dict[int, Member] = {}
        """The processes that live, and training processes that have ended lately."""
        self.main_threads: dict[int, MainThread] = {}
        """Those of the members."""
        self.series: dict[int, SeriesRow] = {}
        """Those of the members, of devices and of the host."""
        self.stacks: dict[int, StackRow] = {}
        self.frames: dict[int, FrameRow] = {}
        self._named = ", ".join(f"'{name}'" for name in sorted(series))
        self._newest: dict[str, int] = {}
        with contextlib.closing(TailFile(path)) as file:
            self.info: RunInfo = file.info()

    def is_recorded(self) -> bool:
        """Say whether who records the run is still there; costs no look at the file."""
        return self.info.state == "live" and processes.is_running(*self.info.recorder)

    @contextlib.contextmanager
    def look(self) -> Iterator[TailFile]:
        """Take in what was written since the last look, and give the file as it is now; raises RunUnreadable."""
        with contextlib.closing(TailFile(self.path)) as file, file.one_moment():
            self.info = file.info()
            self._look_at_members(file)
            self._look_at_series(file)
            self._look_at_stacks(file)
            yield file

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack from the root to the leaf."""
        frames: list[FrameRow] = []
        while stack:
            frames.append(self.frames[self.stacks[stack].frame])
            stack = self.stacks[stack].parent
        return tuple(reversed(frames))

    def known(self, rows: Sequence[OfStack]) -> Sequence[OfStack]:
        """Return rows that name stacks of this look; raises RunUnreadable where there are no such stacks."""
        for row in rows:
            if row.stack not in self.stacks:
                raise database.unreadable(self.path, f"there is no stack {row.stack}")
        return rows

    def _look_at_members(self, file: TailFile) -> None:
        rows = [*file.rows_of(Member, "process", self.members), *self._new(file, "process", Member)]
        gone_ns = self.info.end_ns - LINGER_NS
        members = (Member(*row) for row in rows)
        self.members = {
            one.id: one for one in members if one.ended_ns is None or (one.role == "main" and one.ended_ns >= gone_ns)
        }
        threads = {row[0]: MainThread(*row) for row in self._new(file, "thread", MainThread, "is_main")}
        known = {**self.main_threads, **threads}
        self.main_threads = {one: row for one, row in known.items() if row.process in self.members}

    def _look_at_series(self, file: TailFile) -> None:
        condition = f"os_tid IS NULL AND name IN ({self._named})"
        rows = {row[0]: SeriesRow(*row) for row in self._new(file, "series", SeriesRow, condition)}
        known = {**self.series, **rows}
        owners = {None, *self.members}
        self.series = {one: row for one, row in known.items() if row.process in owners}

    def _look_at_stacks(self, file: TailFile) -> None:
        for row in self._new(file, "frame", FrameRow):
            self.frames[row[0]] = FrameRow(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6])
        for stack, parent, frame in self._new(file, "stack", StackRow):
            # A stack is written after the one that it extends: only a damaged file goes in a circle.
            if frame not in self.frames or (parent and not (parent < stack and parent in self.stacks)):
                raise database.unreadable(self.path, f"stack {stack} is damaged")
            self.stacks[stack] = StackRow(stack, parent, frame)

    def _new(
        self, file: TailFile, table: str, row: type[msgspec.Struct], condition: str = "1"
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a table that were not there at the last look."""
        after, newest = self._newest.get(table, 0), file.newest_id(table)
        self._newest[table] = newest
        return file.rows_between(row, table, after, newest, condition) if newest > after else []
