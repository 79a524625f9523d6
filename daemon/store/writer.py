"""Writes a run file: one thread takes records from a bounded queue and commits them in batches.

Collectors call ``put`` and never wait: if the queue is full, the record is dropped and counted. A
write that the disk or a lock refuses is tried again until it succeeds; the run then reports what
was dropped meanwhile. A record that no file can store is dropped alone. Only a damaged file ends
the writer, which says so in ``failure`` and takes nothing more; everything that was committed stays
readable.

profd stops well before the disk is full. The space left free is also enough for folding the log
into the file.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store import database, records
from profd.daemon.store.records import DescribeFrame, EventHappened, Record, time_of
from profd.daemon.store.tables import Tables
from profd.daemon.units import size


class Losses:
    """Counts dropped records, from any thread, and reports every one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unsaid: Counter[str] = Counter()
        self._first_ns = self._last_ns = 0
        self._silent_to_ns = 0

    def count(self, record: Record, why: str) -> None:
        at_ns = time_of(record)
        with self._lock:
            if not self._unsaid:
                self._first_ns = self._last_ns = at_ns
            self._unsaid[why] += 1
            self._first_ns, self._last_ns = min(self._first_ns, at_ns), max(self._last_ns, at_ns)

    def take(self, written_ns: int, *, is_end: bool = False) -> list[EventHappened]:
        """Return the events to write once the run is written up to a time.

        They then count as reported. Dropped records are newer than those still queued. If the event
        came before the queued records are written, the sums of the run would count all time up to
        then as complete.
        """
        with self._lock:
            if not self._unsaid or (
                not is_end and written_ns < max(self._first_ns, self._silent_to_ns)
            ):
                return []
            self._silent_to_ns = (
                written_ns + 60 * SECOND_NS
            )  # continuing losses are reported no more often
            length_s = (self._last_ns - self._first_ns) / SECOND_NS
            said = "; ".join(
                f"{count} {'record was' if count == 1 else 'records were'} dropped: {why}"
                for why, count in self._unsaid.most_common()
            )
            self._unsaid.clear()
            text = f"within {length_s:.0f} s {said}" if length_s >= 1 else said
            return [EventHappened(min(self._first_ns, written_ns), EventKind.LOSS, text)]


LEFT_FREE_BYTES = 1 << 30  # left free on the disk, or a twentieth of the disk if that is less


class Room:
    """Watches the size of a file and its log, and the free space on its disk."""

    def __init__(self, path: Path, most_bytes: int | None) -> None:
        """Watch a file.

        ``most_bytes`` bounds the size of the file with its log; None if only the disk limits it.
        """
        self._files = (path, database.log_of(path))
        self._most_bytes = most_bytes
        self.is_short = False
        self.why = ""  # the free space, or the lack of it, in words

    def look(self) -> bool:
        """Look again; True if this changed ``is_short``.

        A disk whose free space is unknown counts as having some.
        """
        try:
            disk = os.statvfs(self._files[0].parent)
        except OSError:
            return False
        free_bytes, whole_bytes = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        file_bytes, log_bytes = map(_size, self._files)
        kept_bytes = min(LEFT_FREE_BYTES, 0.05 * whole_bytes) + log_bytes
        # To resume takes more free space than to stop, so that a run does not alternate between
        # both.
        was_short, self.is_short = (
            self.is_short,
            free_bytes < kept_bytes * (1.5 if self.is_short else 1),
        )
        self.why = f"{size(free_bytes)} are free on the disk of the run file"
        if self._most_bytes is not None and file_bytes + log_bytes > self._most_bytes:
            self.is_short = True
            self.why = f"the run file has {size(file_bytes + log_bytes)}, and lies in memory"
        return self.is_short != was_short


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


QUEUE_LENGTH = (
    4096  # in records of some kilobytes; a large record counts for as many as its memory holds
)
BATCH_LENGTH = 256
GATHER_S, WATCHED_GATHER_S = 3.0, 0.1
"""How long readings wait for others: while nobody watches, and while somebody does.

A transaction takes longer than writing the readings themselves.
"""
FIRST_WAIT_S, LONGEST_WAIT_S = (
    0.05,
    2.0,
)  # between two tries of a refused write; each wait is twice the one before


class RunWriter:
    """The writer of one run file, with its thread."""

    def __init__(
        self,
        path: Path,
        started: records.RunStarted,
        describe_frame: DescribeFrame,
        most_bytes: int | None = None,
    ) -> None:
        """Create the run file and start the thread.

        ``describe_frame`` is called once per frame, in the writer's thread, and may read files.
        Beyond ``most_bytes`` the file takes only small records. Raises OutputUnwritable if the file
        cannot be created.
        """
        self.path = path
        self.failure: str | None = None
        self.trouble: str | None = None  # why nothing can be written at the moment
        self.gathers = False  # whether readings may wait longer for others
        self._is_due = threading.Event()
        self._losses = Losses()
        self._room = Room(path, most_bytes)
        self._given_up = threading.Event()
        self._tables = Tables(database.create(path), describe_frame)
        self._queue = _WeighedQueue(2 * QUEUE_LENGTH)
        try:
            self._tables.begin(started)
        except (sqlite3.Error, MemoryError) as error:
            self._tables.close()
            database.remove(path)
            raise database.unwritable(path, error) from error
        self._thread = threading.Thread(target=self._run, name="profd-writer", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> bool:
        """Hand a record over; False if it was dropped.

        Half of the queue is reserved for small records of what happened.
        """
        if self.failure is None:
            try:
                if _is_bulk(record) and self._queue.qsize() >= QUEUE_LENGTH:
                    raise queue.Full
                self._queue.put_nowait(record)
                if not isinstance(record, records.PointsTaken):
                    self._is_due.set()
            except queue.Full:
                self._losses.count(record, self.trouble or "the disk is too slow")
            else:
                return True
        return False

    def close(self, timeout_s: float = 30.0) -> None:
        """Write what is queued, fold the write-ahead log into the file, and end the thread.

        Work that takes longer than ``timeout_s`` is given up, and sooner if nothing can be written
        anyway; ``failure`` then says so.
        """
        if self.trouble:
            timeout_s = min(timeout_s, 10.0)
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=timeout_s)
                self._is_due.set()
                self._thread.join(timeout_s)
        self._given_up.set()
        if self._thread.is_alive() and self.trouble:
            self._thread.join(database.LOCK_TIMEOUT_S + LONGEST_WAIT_S)
        if self._thread.is_alive():
            self.failure = (
                self.failure or f"the disk was too slow to close the file within {timeout_s:.0f} s"
            )

    def _run(self) -> None:
        try:
            while self._write_batch():
                pass
            self._commit(self._losses.take(self._tables.written_ns, is_end=True))
            self._keep_trying(self._tables.finish)
            self._fold()
        except Exception as error:  # noqa: BLE001  the thread ends here: any error is reported in failure, not lost
            self.failure = str(error) or type(error).__name__
            with contextlib.suppress(queue.Empty):
                while (
                    True
                ):  # no one will write these, and the closing thread needs room in the queue
                    self._queue.get_nowait()
        self._tables.close()

    def _write_batch(self) -> bool:
        """Wait for a record, and commit it with all others that have arrived by then.

        False at the end of the run.
        """
        batch = [self._queue.get()]
        if self._queue.qsize() < BATCH_LENGTH:
            self._is_due.wait(GATHER_S if self.gathers else WATCHED_GATHER_S)
        self._is_due.clear()
        while batch[-1] is not None and len(batch) < BATCH_LENGTH:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        self._commit(self._fitting([record for record in batch if record is not None]))
        self._commit(self._losses.take(self._tables.written_ns))
        return batch[-1] is not None

    def _fitting(self, records: Sequence[Record]) -> list[Record]:
        """Return the records for which there is room.

        If the disk is nearly full, only small records remain.
        """
        said: list[Record] = []
        if self._room.look() and records:
            what = "samples and readings pause" if self._room.is_short else "the recording goes on"
            text = f"{what}: {self._room.why}"
            kind = EventKind.LOSS if self._room.is_short else EventKind.NOTE
            said.append(EventHappened(self._tables.written_ns, kind, text))
        for record in records:
            if self._room.is_short and _is_bulk(record):
                self._losses.count(record, "there is no room for more")
            else:
                said.append(record)
        return said

    def _commit(self, records: Sequence[Record]) -> None:
        """Commit records, without those that no file can store."""
        try:
            self._keep_trying(lambda: self._tables.commit(records))
        except Exception as error:
            if not database.is_of_the_data(error):
                raise
            if len(records) == 1:
                self._losses.count(records[0], f"it cannot be stored ({error})")
            else:
                for record in records:
                    self._commit([record])

    def _keep_trying(self, write: Callable[[], None]) -> None:
        """Write, and try again as long as the obstacle may go away."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                write()
            except (sqlite3.Error, MemoryError) as error:
                if not database.may_pass(error) or self._given_up.is_set():
                    raise
                self.trouble = f"the run file could not be written ({error or 'out of memory'})"
            else:
                self.trouble = None
                return
            self._given_up.wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _fold(self) -> None:
        """Fold the log into the file.

        The run is complete without this, so there are only a few attempts.
        """
        for _ in range(3):
            try:
                self._tables.fold()
            except (sqlite3.Error, MemoryError):
                self._given_up.wait(FIRST_WAIT_S)
            else:
                return


class _WeighedQueue(queue.Queue["Record | None"]):
    """A queue whose length is the weight of its items, because it bounds memory."""

    _length = 0

    def _qsize(self) -> int:
        return self._length

    def _put(self, item: Record | None) -> None:
        super()._put(item)
        self._length += _length_of(item)

    def _get(self) -> Record | None:
        item: Record | None = super()._get()
        self._length -= _length_of(item)
        return item


def _is_bulk(record: Record) -> bool:
    """Say whether a record is of a large kind, of which a run may lack some."""
    return isinstance(
        record,
        (records.RecordingTaken, records.PointsTaken, records.OutputWritten, records.WindowTaken),
    )


def _length_of(record: Record | None) -> int:
    """Return the memory that a record takes, as a part of the queue's length."""
    held = 0
    if isinstance(record, records.RecordingTaken):
        held = 160 * sum(len(thread.intervals) for thread in record.threads)
        held += 64 * sum(len(stack) for stack in record.stacks)
    elif isinstance(record, records.OutputWritten):
        held = len(record.data)
    elif isinstance(record, records.WindowTaken):
        held = (
            len(record.trace or b"")
            + 300 * len(record.operators)
            + 100 * len(record.gaps + record.waits)
        )
    return 1 + held // 16384
