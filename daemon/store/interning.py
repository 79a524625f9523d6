"""The ids of what a run file holds once, however often it is seen.

These are processes, threads, series, frames and stacks.
"""

from __future__ import annotations

import functools
import sqlite3
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.database import insert
from profd.daemon.store.records import DescribeFrame, Frame, Identity, Point, Stack

REMEMBERED_NS = (
    30 * SECOND_NS
)  # recordings and counters of a process still arrive for some seconds after its end
# Some hundred bytes for each, in both generations. A training has some thousand stacks, and few at
# a time.
FRAMES_HELD = 1024
STACKS_HELD = 2048
WHOLE_HELD = 512
# For one process: short-lived workers leave threads behind in the process that started them.
THREADS_HELD = 256
SERIES_HELD = 512

Key = TypeVar("Key", bound=Hashable)


class Recent(Generic[Key]):
    """The ids of the keys that were asked for lately.

    It holds at least the last ``most`` keys, and at most twice as many.
    """

    __slots__ = ("_elder", "_most", "_young")

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[Key, int] = {}
        self._elder: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._elder)

    def get(self, key: Key, look_up: Callable[[], int]) -> int:
        """Return the id of a key; ``look_up`` finds it if it is not held."""
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
    """Finds ids in the file behind a connection, and adds a row for whatever has no id yet."""

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._describe_frame = describe_frame
        self._ended: deque[tuple[int, Identity]] = deque()
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all ids; after a transaction that failed, the file may not have them."""
        self._members: dict[Identity, _Member] = {}
        self._shared = _Member(None)  # the machine and its devices: series of no process
        self._frames: Recent[Frame] = Recent(FRAMES_HELD)
        self._stacks: Recent[tuple[int, int]] = Recent(STACKS_HELD)
        self._whole: dict[Stack, int] = {}
        self._newest_stack = -1

    def __len__(self) -> int:
        members = (self._shared, *self._members.values())
        of_members = sum(1 + len(member.threads) + len(member.series) for member in members)
        return (
            len(self._frames) + len(self._stacks) + len(self._whole) + len(self._ended) + of_members
        )

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

        return member.threads.get((os_tid, name, is_main), look_up)

    def series(self, point: Point) -> int:
        """Return the id of a point's series.

        Raises LookupError if the file does not know the process.
        """
        member = self._known(point.identity) if point.identity else self._shared

        def look_up() -> int:
            named = {"name": point.name, "os_tid": point.os_tid, "device": point.device}
            return self._find_or_add("series", {"process": member.process, **named})

        return member.series.get((point.name, point.os_tid, point.device), look_up)

    def stacks(self, stacks: Sequence[Stack]) -> list[int]:
        """Return the ids of stacks; 0 is the empty one.

        A new stack is looked up from the frame at which it differs from the one before.
        """
        found, before, path = [], Stack(), [0]
        for frames in stacks:
            known = self._whole.get(frames)
            if known is None:
                same = 0
                for mine, theirs in zip(frames, before, strict=False):
                    if mine is not theirs:
                        break
                    same += 1
                del path[same + 1 :]
                for frame in frames[same:]:
                    key = path[-1], self._frame(frame)
                    path.append(self._stacks.get(key, functools.partial(self._node, *key)))
                before, known = frames, path[-1]
                if len(self._whole) >= WHOLE_HELD:
                    self._whole.clear()
                self._whole[frames] = known
            found.append(known)
        return found

    def _node(self, parent: int, frame: int) -> int:
        row = {"parent": parent, "frame": frame}
        # The stack that was added last cannot have called anything yet.
        found = None if parent == self._newest_stack else self._find("stack", row)
        if found is None:
            found = self._newest_stack = insert(self._connection, "stack", row)
        return found

    def _frame(self, frame: Frame) -> int:
        def look_up() -> int:
            found = self._find("frame", frame._asdict())
            if found is not None:
                return found
            more = msgspec.structs.asdict(self._describe_frame(frame))
            is_without_gradients = more.pop("is_without_gradients")
            added = insert(self._connection, "frame", {**frame._asdict(), **more})
            if is_without_gradients:
                insert(self._connection, "frame_without_gradients", {"id": added})
            return added

        return self._frames.get(frame, look_up)

    def _member(self, identity: Identity) -> _Member | None:
        member = self._members.get(identity)
        if member is None:
            sql = "SELECT id, ended_ns FROM process WHERE pid = ? AND start_ticks = ?"
            found = self._connection.execute(sql, identity).fetchone()
            if found is not None:
                member = self._members[identity] = _Member(int(found[0]))
                if found[1] is not None:  # it is forgotten with the process that ended last
                    self.end(identity, self._ended[-1][0] if self._ended else 0)
        return member

    def _known(self, identity: Identity) -> _Member:
        if (member := self._member(identity)) is None:
            raise LookupError(f"process {identity.pid} is not in the file")
        return member

    def _find_or_add(
        self, table: str, row: Mapping[str, object], more: Callable[[], dict[str, object]] = dict
    ) -> int:
        """Return the id of the row that has these values.

        If there is none, add it, with the values of ``more`` besides.
        """
        found = self._find(table, row)
        return insert(self._connection, table, {**row, **more()}) if found is None else found

    def _find(self, table: str, row: Mapping[str, object]) -> int | None:
        where = " AND ".join(f"{name} IS ?" for name in row)
        found = self._connection.execute(
            f"SELECT id FROM {table} WHERE {where}", tuple(row.values())
        ).fetchone()
        return int(found[0]) if found else None


@dataclass(slots=True)
class _Member:
    """A process with its threads and its series.

    Threads are keyed by id, name and whether they are main threads, series by name, thread and
    device.
    """

    process: int | None
    threads: Recent[tuple[int, str, bool]] = field(default_factory=lambda: Recent(THREADS_HELD))
    series: Recent[tuple[str, int | None, str | None]] = field(
        default_factory=lambda: Recent(SERIES_HELD)
    )
