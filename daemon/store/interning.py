"""The ids of what a run file holds once, however often it is seen.

These are processes, threads, series, frames and stacks.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Mapping, Sequence

from profd.daemon.store.database import insert, row_of
from profd.daemon.store.records import DescribeFrame, Frame, Identity, Point, Stack

# Some hundred bytes for each. A training has some thousand stacks, and few at a time. Workers come
# and go, and leave threads behind in the process that started them.
PROCESSES_HELD = 1024
THREADS_HELD = 4096
SERIES_HELD = 8192
FRAMES_HELD = 1024
STACKS_HELD = 2048
WHOLE_HELD = 512


class Interning:
    """Finds ids in the file behind a connection, and adds a row for whatever has no id yet.

    It remembers the ids that were asked for lately.
    """

    def __init__(self, connection: sqlite3.Connection, describe_frame: DescribeFrame) -> None:
        self._connection = connection
        self._describe_frame = describe_frame
        self._process = functools.lru_cache(PROCESSES_HELD)(self._find_process)
        self._thread = functools.lru_cache(THREADS_HELD)(self._find_thread)
        self._series = functools.lru_cache(SERIES_HELD)(self._find_series)
        self._frame = functools.lru_cache(FRAMES_HELD)(self._find_frame)
        self._node = functools.lru_cache(STACKS_HELD)(self._find_node)
        self._stack = functools.lru_cache(WHOLE_HELD)(self._find_stack)
        self._newest_stack = -1
        self._held = self._process, self._thread, self._series, self._frame, self._node, self._stack

    def forget_all(self) -> None:
        """Forget all ids; after a transaction that failed, the file may not have them."""
        for held in self._held:
            held.cache_clear()
        self._newest_stack = -1

    def __len__(self) -> int:
        return sum(held.cache_info().currsize for held in self._held)

    def process(self, identity: Identity | None) -> int | None:
        """Return the id of a process, None if the file does not know it."""
        if identity is not None:
            with contextlib.suppress(LookupError):
                return self._process(identity)
        return None

    def thread(self, identity: Identity, os_tid: int, name: str, *, is_main: bool) -> int:
        """Return the id of a thread; raises LookupError if the file does not know the process.

        A thread whose name is not known yet ("") is the same as the one that has a name before or
        later. A thread that becomes the main thread gets a new row from then on, so that its
        earlier samples keep their meaning.
        """
        return self._thread(self._process(identity), os_tid, name, is_main)

    def series(self, point: Point) -> int:
        """Return the id of a point's series.

        Raises LookupError if the file does not know the process.
        """
        process = self._process(point.identity) if point.identity else None
        return self._series(process, point.name, point.os_tid, point.device)

    def stacks(self, stacks: Sequence[Stack]) -> list[int]:
        """Return the ids of stacks; 0 is the empty one."""
        return [self._stack(frames) for frames in stacks]

    def _find_stack(self, frames: Stack) -> int:
        found = 0
        for frame in frames:
            found = self._node(found, self._frame(frame))
        return found

    def _find_node(self, parent: int, frame: int) -> int:
        row = {"parent": parent, "frame": frame}
        # The stack that was added last cannot have called anything yet.
        found = None if parent == self._newest_stack else self._find("stack", row)
        if found is None:
            found = self._newest_stack = insert(self._connection, "stack", row)
        return found

    def _find_frame(self, frame: Frame) -> int:
        found = self._find("frame", frame._asdict())
        if found is not None:
            return found
        described = self._describe_frame(frame)
        row = frame._asdict() | row_of(described, "frame")
        added = insert(self._connection, "frame", row)
        if described.is_without_gradients:
            insert(self._connection, "frame_without_gradients", {"id": added})
        return added

    def _find_process(self, identity: Identity) -> int:
        found = self._find("process", identity._asdict())
        if found is None:
            raise LookupError(f"process {identity.pid} is not in the file")
        return found

    def _find_thread(self, process: int, os_tid: int, name: str, is_main: bool) -> int:
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
        found = self._find("series", row)
        return insert(self._connection, "series", row) if found is None else found

    def _find(self, table: str, row: Mapping[str, object]) -> int | None:
        where = " AND ".join(f"{name} IS ?" for name in row)
        found = self._connection.execute(
            f"SELECT id FROM {table} WHERE {where}", tuple(row.values())
        ).fetchone()
        return int(found[0]) if found else None
