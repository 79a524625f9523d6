"""What the rows of a run file refer to: processes, threads, series, frames and stacks, held in memory.

These tables only grow, and are topped up on ``refresh``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from profd.daemon.errors import RunUnreadable
from profd.daemon.store import database
from profd.daemon.store.rows import FrameRow, ProcessRow, RunInfo, SeriesRow, StackRow, ThreadRow
from profd.daemon.store.runfile import RunFile, columns_of
from profd.daemon.store.runinfo import run_info


class Entities(RunFile):
    """An open run file with what its rows refer to, by id.

    Every method raises RunUnreadable where the file turns out to be damaged.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises RunUnreadable where it is no readable run file."""
        super().__init__(path)
        self.frames: dict[int, FrameRow] = {}
        self.stacks: dict[int, StackRow] = {}
        self.processes: dict[int, ProcessRow] = {}
        self.threads: dict[int, ThreadRow] = {}
        self.series: dict[int, SeriesRow] = {}
        self._checked_stacks: set[int] = set()
        try:
            self.refresh()
        except RunUnreadable:
            self.close()
            raise

    def refresh(self) -> None:
        """Take in what was written since the last call: ``info`` and the tables held in memory."""
        self.info: RunInfo = run_info(self.path, dict(self._query("SELECT name, value FROM meta")))
        # Children before parents in the order of foreign keys: what a row read now refers to is then there too.
        self._refresh_series()
        self._refresh_threads()
        self._refresh_processes()
        self._refresh_stacks()
        self._refresh_frames()
        self._check_processes()
        self._check_stacks()

    def _refresh_series(self) -> None:
        for row in self.select(SeriesRow, "SELECT id, name, process, os_tid, device FROM series"):
            self.series[row[0]] = SeriesRow(*row)

    def _refresh_threads(self) -> None:
        for row in self.select(ThreadRow, "SELECT id, process, os_tid, name, is_main FROM thread"):
            self.threads[row[0]] = ThreadRow(row[0], row[1], row[2], row[3], bool(row[4]))

    def _refresh_processes(self) -> None:
        for row in self.select(ProcessRow, f"SELECT {columns_of(ProcessRow)} FROM process"):
            with database.reading(self.path):
                command = tuple(msgspec.json.decode(str(row[4]), type=list[str]))
            self.processes[row[0]] = ProcessRow(row[0], row[1], row[2], row[3], command, *row[5:])

    def _refresh_stacks(self) -> None:
        newest = max(self.stacks, default=0)
        for row in self.select(StackRow, "SELECT id, parent, frame FROM stack WHERE id > ?", newest):
            self.stacks[row[0]] = StackRow(*row)

    def _refresh_frames(self) -> None:
        sql = "SELECT id, function, file, module_path, line, is_library, source FROM frame WHERE id > ?"
        for row in self.select(FrameRow, sql, max(self.frames, default=0)):
            self.frames[row[0]] = FrameRow(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6])

    def _check_processes(self) -> None:
        """Raise RunUnreadable where a row names a process that is not there."""
        processes = {None, *self.processes}
        known = (
            all(row.process in self.processes for row in self.threads.values())
            and all(row.process in processes for row in self.series.values())
            and all(row.parent in processes for row in self.processes.values())
        )
        if not known:
            raise database.unreadable(self.path, "a row names a process that is not there")

    def _check_stacks(self) -> None:
        """Raise RunUnreadable where a stack names a frame or a stack that is not there."""
        for stack in sorted(self.stacks.keys() - self._checked_stacks):
            row = self.stacks[stack]
            # A stack is written after the one that it extends: only a damaged file goes in a circle.
            if row.frame not in self.frames or (row.parent and not (row.parent < stack and row.parent in self.stacks)):
                raise database.unreadable(self.path, f"stack {stack} is damaged")
            self._checked_stacks.add(stack)

    def check_known(
        self, threads: Collection[int] = (), stacks: Collection[int] = (), processes: Collection[int] = ()
    ) -> None:
        """Raise RunUnreadable where rows name what is not there, nor was written since."""
        for _ in range(2):
            if (
                self.threads.keys() >= set(threads)
                and self.stacks.keys() >= set(stacks)
                and self.processes.keys() >= set(processes)
            ):
                return
            self.refresh()
        raise database.unreadable(self.path, "a row names a process, a thread or a stack that is not there")

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read everything as of one moment: refreshed on entry, blind to what a live run writes until the end.

        Without it an interval may name a stack that is newer than the tables in memory.
        """
        with self._transaction():
            self.refresh()
            yield

    def frames_of(self, stack: int) -> tuple[FrameRow, ...]:
        """Return the frames of a stack from the root to the leaf."""
        if stack not in self.stacks:  # an interval may be younger than the tables in memory
            self.refresh()
        frames: list[FrameRow] = []
        while stack:
            row = self.stacks.get(stack)
            # A stack is written after the one that it extends: only a damaged file goes in a circle.
            if row is None or row.frame not in self.frames or row.parent >= stack:
                raise database.unreadable(self.path, f"stack {stack} is damaged")
            frames.append(self.frames[row.frame])
            stack = row.parent
        return tuple(reversed(frames))

    def find_series(self, name: str, process: int | None = None, device: str | None = None) -> SeriesRow | None:
        """Return the series of this name of a process, a device or (both None) the host; None where there is none."""
        for row in self.series.values():
            if row.name == name and row.process == process and row.device == device and row.os_tid is None:
                return row
        return None

    def main_threads(self) -> list[ThreadRow]:
        """Return the main threads of the processes that do the training: one a rank."""
        return [
            thread
            for thread in self.threads.values()
            if thread.is_main and thread.process in self.processes and self.processes[thread.process].role == "main"
        ]
