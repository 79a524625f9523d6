"""The ids of what a run file holds once, however often it is seen.

These are processes, threads, series, frames and stacks.
"""

from __future__ import annotations

import functools
import sqlite3
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.database import insert
from profd.daemon.store.records import DescribeFrame, Frame, Identity, Point, Stack

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

REMEMBERED_NS = (
    30 * SECOND_NS
)  # recordings and counters of a process still arrive for some seconds after its end
# Some hundred bytes for each. A training has some thousand stacks, and few at a time.
FRAMES_HELD = 1024
STACKS_HELD = 2048
WHOLE_HELD = 512
# For one process: short-lived workers leave threads behind in the process that started them.
THREADS_HELD = 256
SERIES_HELD = 512


class _Member(NamedTuple):
    """A process, None for the machine and its devices, and the ids of what belongs to it."""

    process: int | None
    threads: _lru_cache_wrapper[int]
    series: _lru_cache_wrapper[int]


class Interning:
    """Finds ids in the file behind a connection, and adds a row for whatever has no id yet."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._describe_frame = describe_frame
        self._ended: deque[tuple[int, Identity]] = deque()
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all ids; after a transaction that failed, the file may not have them."""
        self._members: dict[Identity, _Member] = {}
        self._shared = self._member_of(None)
        self._frame = functools.lru_cache(FRAMES_HELD)(self._find_frame)
        self._node = functools.lru_cache(STACKS_HELD)(self._find_node)
        self._stack = functools.lru_cache(WHOLE_HELD)(self._find_stack)

    def __len__(self) -> int:
        members = (self._shared, *self._members.values())
        of_members = [one for member in members for one in (member.threads, member.series)]
        held = (self._frame, self._node, self._stack, *of_members)
        return len(members) + len(self._ended) + sum(one.cache_info().currsize for one in held)

    def process(self, identity: Identity | None) -> int | None:
        member = self._member(identity) if identity else None
        return member.process if member else None

    def end(self, identity: Identity, at_ns: int) -> None:
        """Forget a process that has ended, with all that belongs to it, a while from now."""
        self._ended.append((at_ns, identity))

    def forget(self, now_ns: int) -> None:
        while self._ended and self._ended[0][0] + REMEMBERED_NS < now_ns:
            self._members.pop(self._ended.popleft()[1], None)

    def thread(self, identity: Identity, os_tid: int, name: str, *, is_main: bool) -> int:
        """Return the id of a thread; raises LookupError if the file does not know the process.

        A thread whose name is not known yet ("") is the same as the one that has a name before or
        later. A thread that becomes the main thread gets a new row from then on, so that its
        earlier samples keep their meaning.
        """
        return self._known(identity).threads(os_tid, name, is_main)

    def series(self, point: Point) -> int:
        """Return the id of a point's series.

        Raises LookupError if the file does not know the process.
        """
        member = self._known(point.identity) if point.identity else self._shared
        return member.series(point.name, point.os_tid, point.device)

    def stacks(self, stacks: Sequence[Stack]) -> list[int]:
        """Return the ids of stacks; 0 is the empty one."""
        return [self._stack(frames) for frames in stacks]

    def _find_stack(self, frames: Stack) -> int:
        found = 0
        for frame in frames:
            found = self._node(found, self._frame(frame))
        return found

    def _find_node(self, parent: int, frame: int) -> int:
        return self._find_or_add("stack", {"parent": parent, "frame": frame})

    def _find_frame(self, frame: Frame) -> int:
        found = self._find("frame", frame._asdict())
        if found is not None:
            return found
        more = msgspec.structs.asdict(self._describe_frame(frame))
        is_without_gradients = more.pop("is_without_gradients")
        added = insert(self._connection, "frame", {**frame._asdict(), **more})
        if is_without_gradients:
            insert(self._connection, "frame_without_gradients", {"id": added})
        return added

    def _find_thread(self, process: int | None, os_tid: int, name: str, is_main: bool) -> int:
        row = {"process": process, "os_tid": os_tid, "is_main": is_main}
        found = self._find("thread", {**row, "name": name} if name else row)
        if found is None and name:
            found = self._find("thread", {**row, "name": ""})
            if found is not None:
                self._connection.execute("UPDATE thread SET name = ? WHERE id = ?", (name, found))
        return insert(self._connection, "thread", {**row, "name": name}) if found is None else found

    def _find_series(
        self, process: int | None, name: str, os_tid: int | None, device: str | None
    ) -> int:
        row = {"process": process, "name": name, "os_tid": os_tid, "device": device}
        return self._find_or_add("series", row)

    def _member(self, identity: Identity) -> _Member | None:
        member = self._members.get(identity)
        if member is None:
            sql = "SELECT id, ended_ns FROM process WHERE pid = ? AND start_ticks = ?"
            found = self._connection.execute(sql, identity).fetchone()
            if found is not None:
                member = self._members[identity] = self._member_of(int(found[0]))
                if found[1] is not None:  # it is forgotten with the process that ended last
                    self.end(identity, self._ended[-1][0] if self._ended else 0)
        return member

    def _member_of(self, process: int | None) -> _Member:
        threads = functools.partial(self._find_thread, process)
        series = functools.partial(self._find_series, process)
        cached = functools.lru_cache
        return _Member(process, cached(THREADS_HELD)(threads), cached(SERIES_HELD)(series))

    def _known(self, identity: Identity) -> _Member:
        if (member := self._member(identity)) is None:
            raise LookupError(f"process {identity.pid} is not in the file")
        return member

    def _find_or_add(self, table: str, row: Mapping[str, object]) -> int:
        """Return the id of the row that has these values; add it if there is none."""
        found = self._find(table, row)
        return insert(self._connection, table, row) if found is None else found

    def _find(self, table: str, row: Mapping[str, object]) -> int | None:
        where = " AND ".join(f"{name} IS ?" for name in row)
        found = self._connection.execute(
            f"SELECT id FROM {table} WHERE {where}", tuple(row.values())
        ).fetchone()
        return int(found[0]) if found else None
