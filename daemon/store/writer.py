"""Writes a run file: one thread takes records off a bounded queue and commits them in batches.

Whoever collects calls ``put`` and never waits: when the queue is full the record is dropped and counted. When the disk
fails the writer stops, says why in ``failure``, and takes nothing more; whatever was committed stays readable.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from pathlib import Path

from profd.daemon.store import database
from profd.daemon.store.records import DescribeFrame, Record, RunStarted
from profd.daemon.store.tables import Tables

QUEUE_LENGTH = 4096
BATCH_LENGTH = 256


class RunWriter:
    """The writer of one run file, with its thread."""

    def __init__(self, path: Path, started: RunStarted, describe_frame: DescribeFrame) -> None:
        """Create the run file and start the thread.

        ``describe_frame`` is called once a frame, in the writer's thread, and may read files.
        Raises OutputUnwritable where the file cannot be made.
        """
        self.path = path
        self.failure: str | None = None
        self.dropped = 0
        self._tables = Tables(database.create(path), describe_frame)
        self._queue: queue.Queue[Record | None] = queue.Queue(QUEUE_LENGTH)
        try:
            self._tables.begin(started)
        except sqlite3.Error as error:
            self._tables.abandon()
            raise database.unwritable(path, error) from error
        self._thread = threading.Thread(target=self._run, name="profd-writer", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> bool:
        """Hand a record over; False where it had to be dropped."""
        if self.failure is None:
            try:
                self._queue.put_nowait(record)
            except queue.Full:
                self.dropped += 1
            else:
                return True
        return False

    def close(self, timeout_s: float = 30.0) -> None:
        """Write what is queued, fold the write-ahead log into the file, and end the thread.

        What takes longer than ``timeout_s`` is given up; ``failure`` then says so.
        """
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=timeout_s)
                self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.failure = self.failure or f"the disk was too slow to close the file within {timeout_s:.0f} s"

    def _run(self) -> None:
        try:
            while self._write_batch():
                pass
            self._tables.finish()
        except Exception as error:  # noqa: BLE001  the end of a thread: whatever it was, it is said and not lost here
            self.failure = str(error) or type(error).__name__
            self._tables.abandon()
            self._empty_queue()

    def _empty_queue(self) -> None:
        """Let go of what no one will write, so that whoever closes the writer finds room to say so."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _write_batch(self) -> bool:
        """Wait for a record, commit it with all that are there by then; False at the end of the run."""
        batch = [self._queue.get()]
        while batch[-1] is not None and len(batch) < BATCH_LENGTH:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        self._tables.commit([record for record in batch if record is not None])
        return batch[-1] is not None
