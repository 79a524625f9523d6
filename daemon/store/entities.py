"""The processes, threads, frames and stacks of a run file, held in memory by id.

Other rows refer to them. ``top_up`` reads the rows that are new, and those that may still change.
So the next reader of a file can go on from what an earlier one knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store import database
from profd.daemon.store.rows import FrameRow, ProcessRow, StackRow, ThreadRow
from profd.daemon.store.runfile import Row, RunFile

LINGER_NS = 30 * SECOND_NS
"""How long a training process is kept after its end; other processes are not.

Its last recordings arrive after its end.
"""


_WITH_CALLERS = """
    WITH RECURSIVE named (id) AS (
        SELECT id FROM stack WHERE id IN ({})
        UNION SELECT stack.parent FROM stack JOIN named USING (id)
    )
    SELECT id, parent, frame FROM stack WHERE id IN named ORDER BY id
"""


def has_ended(row: ProcessRow, now_ns: int) -> bool:
    """Say whether a process has ended; a training process counts as running for a while longer."""
    return row.ended_ns is not None and (not row.is_main or row.ended_ns < now_ns - LINGER_NS)


class Entities:
    """The processes, threads, frames and stacks of a run, by id."""

    def __init__(
        self,
        is_over: Callable[[ProcessRow, int], bool] | None = None,
        *,
        only_main_threads: bool = False,
    ) -> None:
        """Begin with nothing.

        Processes for which ``is_over`` is true at a time in ns are forgotten with their threads.
        Then only the stacks that a row has named are held: weeks of short-lived workers cost no
        memory.
        """
        self.frames: dict[int, FrameRow] = {}
        self.without_gradients: set[int] = set()
        """The frames whose line lies in a block that switches gradients off."""
        self.stacks: dict[int, StackRow] = {}
        self.processes: dict[int, ProcessRow] = {}
        self.threads: dict[int, ThreadRow] = {}
        self._read_to: dict[str, int] = {}
        self._is_over, self.is_whole = is_over, is_over is None
        self._of_threads = "is_main" if only_main_threads else "1"

    def top_up(self, file: RunFile, now_ns: int) -> None:
        """Read what was written up to about ``now_ns``.

        Raises RunUnreadable if rows contradict each other.
        """
        nameless = [row.id for row in self.threads.values() if not row.name]
        living = [row.id for row in self.processes.values() if row.ended_ns is None]
        try:
            # Tables with references are read before the tables that they refer to: whatever a new
            # row refers to is then there, too.
            threads = _of_ids(file, "thread", ThreadRow, nameless)
            threads += self._new(file, "thread", ThreadRow, self._of_threads)
            processes = _of_ids(file, "process", ProcessRow, living) + self._new(
                file, "process", ProcessRow
            )
            stacks = self._new(file, "stack", StackRow) if self.is_whole else []
            self._add_frames(file)
            self.threads.update({row.id: row for row in threads})
            self.processes.update({row.id: row for row in processes})
            self._add(file, stacks)
            named = {row.process for row in threads} | {row.parent for row in processes}
            if self._is_over is not None:
                self._forget(
                    [row.id for row in self.processes.values() if self._is_over(row, now_ns)]
                )
            elif not self.processes.keys() >= named - {None}:
                raise database.unreadable(file.path, "a row names a process that is not there")
        except RunUnreadable:
            self._read_to.clear()
            raise

    def _new(self, file: RunFile, table: str, row: type[Row], condition: str = "1") -> list[Row]:
        """Return the new rows of a table that meet an SQL condition, in order of ids."""
        after, newest = self._read_to.get(table, 0), file.newest_id(table)
        self._read_to[table] = newest
        if newest <= after:
            return []
        return file.fetch_from(
            table, row, f"id > ? AND id <= ? AND {condition} ORDER BY id", after, newest
        )

    def _add_frames(self, file: RunFile) -> None:
        frames = self._new(file, "frame", FrameRow)
        self.frames.update({row.id: row for row in frames})
        if frames and file.has_table("frame_without_gradients"):
            after = max(self.without_gradients, default=0)
            found = file.select(
                tuple[int], "SELECT id FROM frame_without_gradients WHERE id > ?", after
            )
            self.without_gradients.update(row[0] for row in found)

    def _add(self, file: RunFile, stacks: Iterable[StackRow]) -> None:
        for row in stacks:
            is_after = row.parent < row.id and row.parent in self.stacks
            if row.frame not in self.frames or (row.parent and not is_after):
                raise database.unreadable(file.path, f"stack {row.id} is damaged")
            self.stacks[row.id] = row

    def _forget(self, processes: Iterable[int]) -> None:
        for one in processes:
            del self.processes[one]
        for one in [one for one, row in self.threads.items() if row.process not in self.processes]:
            del self.threads[one]

    def knows(
        self,
        file: RunFile,
        threads: Collection[int],
        stacks: Collection[int],
        processes: Collection[int],
    ) -> bool:
        """Say whether rows with these ids exist.

        Threads and processes are checked only if none are forgotten. Stacks that are read only once
        a row names them are read now; raises RunUnreadable if they are damaged.
        """
        if not self.is_whole:
            threads, processes = (), ()
            if unread := set(stacks) - self.stacks.keys():
                found = file.fetch(StackRow, _WITH_CALLERS.format(database.listed(unread)))
                if not self.frames.keys() >= {row.frame for row in found}:
                    return False  # they are newer than the tables in memory
                self._add(file, found)
        tables = ((self.threads, threads), (self.stacks, stacks), (self.processes, processes))
        return all(table.keys() >= set(ids) for table, ids in tables)

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack from the root to the leaf.

        Raises KeyError if a part of it is missing.
        """
        frames: list[FrameRow] = []
        while stack:
            row = self.stacks[stack]
            # A stack is written after the one that it extends: only in a damaged file could the
            # parents form a circle.
            if row.parent >= stack:
                raise KeyError(stack)
            frames.append(self.frames[row.frame])
            stack = row.parent
        return tuple(reversed(frames))


def _of_ids(file: RunFile, table: str, row: type[Row], ids: Collection[int]) -> list[Row]:
    return file.fetch_from(table, row, f"id IN ({database.listed(ids)})") if ids else []
