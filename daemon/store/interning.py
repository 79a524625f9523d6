"""The ids of what a run file says again and again: processes, threads, series, frames, stacks.

A run may go on for weeks, with new workers every few seconds and functions that are made up as it goes. So the memory
is bounded: processes that ended are forgotten soon, the rest when much is newer. What was forgotten is found again in
the file.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.database import insert
from profd.daemon.store.records import DescribeFrame, Frame, Identity, Point

REMEMBERED_NS = 30 * SECOND_NS  # recordings and counters of a process that has ended come in for some seconds more
# Some hundred bytes each, and of both generations of them. A training has some thousand frames and stacks.
FRAMES_HELD = 2048
STACKS_HELD = 4096
# Of one process: workers that come and go leave threads behind in the one that started them.
THREADS_HELD = 256
SERIES_HELD = 512

Key = TypeVar("Key", bound=Hashable)


class Recent(Generic[Key]):
    """Ids of what was asked for lately: of the last ``most`` keys surely, of twice as many at most."""

    __slots__ = ("_elder", "_most", "_young")

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[Key, int] = {}
        self._elder: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._elder)

    def get(self, key: Key, look_up: Callable[[], int]) -> int:
        """Return the id of a key, by ``look_up`` where it is not held."""
        found = self._young.get(key)
        if found is None:
            found = self._elder.pop(key, None)
            if found is None:
                found = look_up()
            if len(self._young) >= self._most:
                self._young, self._elder = {}, self._young
            self._young[key] = found
        return found


class Interning:
    """Finds the ids in the file behind a connection, and gives one to what has none."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._describe_frame = describe_frame
        self._ended: deque[tuple[int, Identity]] = deque()
        self.forget_all()

    def forget_all(self) -> None:
        """Forget every id, as after a transaction that failed: the file may not have them."""
        self._members: dict[Identity, _Member] = {}
        self._shared = _Member(None)  # the machine and its devices: series of no process
        self._frames: Recent[Frame] = Recent(FRAMES_HELD)
        self._stacks: Recent[tuple[int, int]] = Recent(STACKS_HELD)

    def __len__(self) -> int:
        members = (self._shared, *self._members.values())
        of_members = sum(1 + len(member.threads) + len(member.series) for member in members)
        return len(self._frames) + len(self._stacks) + len(self._ended) + of_members

    def process(self, identity: Identity | None) -> int | None:
        member = self._member(identity) if identity else None
        return member.process if member else None

    def take_in(self, identity: Identity, process: int) -> None:
        self._members[identity] = _Member(process)

    def end(self, identity: Identity, at_ns: int) -> None:
        """Forget a process that has ended, and all that belongs to it, a while from now."""
        self._ended.append((at_ns, identity))

    def forget(self, now_ns: int) -> None:
        while self._ended and self._ended[0][0] + REMEMBERED_NS < now_ns:
            self._members.pop(self._ended.popleft()[1], None)

    def thread(self, identity: Identity, os_tid: int, name: str, *, is_main: bool) -> int:
        """Return the id of a thread; raises LookupError where the file does not know the process.

        A thread whose name is not known yet, "", is the one that has a name before or later.
        """
        member = self._known(identity)

        def look_up() -> int:
            row = {"process": member.process, "os_tid": os_tid, "is_main": is_main}
            if not name:
                return self._find_or_add("thread", row, lambda: {"name": ""})
            nameless = self._find("thread", {**row, "name": ""})
            if nameless is None or self._find("thread", {**row, "name": name}) is not None:
                return self._find_or_add("thread", {**row, "name": name})
            self._connection.execute("UPDATE thread SET name = ? WHERE id = ?", (name, nameless))
            return nameless

        return member.threads.get((os_tid, name), look_up)

    def series(self, point: Point) -> int:
        """Return the id of a point's series; raises LookupError where the file does not know the process."""
        member = self._known(point.identity) if point.identity else self._shared

        def look_up() -> int:
            named = {"name": point.name, "os_tid": point.os_tid, "device": point.device}
            return self._find_or_add("series", {"process": member.process, **named})

        return member.series.get((point.name, point.os_tid, point.device), look_up)

    def stack(self, frames: Sequence[Frame]) -> int:
        """Return the id of a stack, given from the root to the leaf; 0 is the empty one."""
        stack = 0
        for frame in frames:
            stack = self._node(stack, self._frame(frame))
        return stack

    def _node(self, parent: int, frame: int) -> int:
        return self._stacks.get((parent, frame), lambda: self._find_or_add("stack", {"parent": parent, "frame": frame}))

    def _frame(self, frame: Frame) -> int:
        def describe() -> dict[str, object]:
            return msgspec.structs.asdict(self._describe_frame(frame))

        return self._frames.get(frame, lambda: self._find_or_add("frame", frame._asdict(), describe))

    def _member(self, identity: Identity) -> _Member | None:
        member = self._members.get(identity)
        if member is None:
            sql = "SELECT id, ended_ns FROM process WHERE pid = ? AND start_ticks = ?"
            found = self._connection.execute(sql, identity).fetchone()
            if found is not None:
                member = self._members[identity] = _Member(int(found[0]))
                if found[1] is not None:  # it goes with the one that ended last
                    self.end(identity, self._ended[-1][0] if self._ended else 0)
        return member

    def _known(self, identity: Identity) -> _Member:
        if (member := self._member(identity)) is None:
            raise LookupError(f"process {identity.pid} is not in the file")
        return member

    def _find_or_add(self, table: str, row: Mapping[str, object], more: Callable[[], dict[str, object]] = dict) -> int:
        """Return the id of the row that has these values; where there is none, add it with ``more`` beside them."""
        found = self._find(table, row)
        return insert(self._connection, table, {**row, **more()}) if found is None else found

    def _find(self, table: str, row: Mapping[str, object]) -> int | None:
        where = " AND ".join(f"{name} IS ?" for name in row)
        found = self._connection.execute(f"SELECT id FROM {table} WHERE {where}", tuple(row.values())).fetchone()
        return int(found[0]) if found else None


@dataclass(slots=True)
class _Member:
    """A process, with its threads by the kernel's id and name, and its series by name, thread and device."""

    process: int | None
    threads: Recent[tuple[int, str]] = field(default_factory=lambda: Recent(THREADS_HELD))
    series: Recent[tuple[str, int | None, str | None]] = field(default_factory=lambda: Recent(SERIES_HELD))
