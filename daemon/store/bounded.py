"""A connection whose queries cost no more than a file of its size accounts for: a hostile one may ask for more.

A page that is linked from many places is read many times, so that some kilobytes hold billions of rows. But a sound
file of a certain size holds at most so many rows and so much text, and takes so much work. The bounds are counts: a
slow disk and a busy machine are no reason to refuse a file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEAST_ROW_BYTES = 6
"""What the smallest row takes in its page: two bytes that say where it is, and four of its own."""
WORK_PER_BYTE = 30
"""Instructions of SQLite's machine that a query may take; what profd asks takes one or two."""
_SPARE_ROWS = 1000
_SPARE_TEXT_BYTES = 1 << 20
_SPARE_WORK = 1_000_000
_COUNTED_AT_ONCE = 10_000


class BoundedConnection(sqlite3.Connection):
    """A connection to a file that may be hostile; ``bound`` has to be called before anything is asked."""

    _path: Path
    _work = _most_work = _most_rows = _most_text_bytes = 0

    def bound(self, path: Path) -> None:
        """Bound what each query may cost by the size of this file, which may grow."""
        self._path = path
        self._measure()
        self.set_progress_handler(self._is_too_much_work, _COUNTED_AT_ONCE)

    def rows(self, sql: str, values: Sequence[int | str] | Mapping[str, int] = ()) -> list[tuple[Any, ...]]:
        """Return what a query gives; raises sqlite3.Error also where that is more than a sound file can give."""
        self._work = text_bytes = 0
        found: list[tuple[Any, ...]] = []
        try:
            for row in self.execute(sql, values):
                found.append(row)
                for value in row:
                    if type(value) is str or type(value) is bytes:
                        text_bytes += len(value)
                if len(found) > self._most_rows or text_bytes > self._most_text_bytes:
                    self._check_size(len(found), text_bytes)
        except sqlite3.OperationalError as error:
            if self._work > self._most_work:
                raise sqlite3.DatabaseError("it takes more work than its size accounts for") from error
            raise
        return found

    def _is_too_much_work(self) -> bool:
        self._work += _COUNTED_AT_ONCE
        if self._work > self._most_work:
            self._measure()
        return self._work > self._most_work

    def _check_size(self, rows: int, text_bytes: int) -> None:
        """Raise sqlite3.DatabaseError where a file of the size that it has by now cannot give so much."""
        self._measure()
        if rows > self._most_rows or text_bytes > self._most_text_bytes:
            raise sqlite3.DatabaseError("it gives more than its size accounts for")

    def _measure(self) -> None:
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        size = sum(file.stat().st_size for file in files if file.exists())
        self._most_work = size * WORK_PER_BYTE + _SPARE_WORK
        self._most_rows = size // LEAST_ROW_BYTES + _SPARE_ROWS
        self._most_text_bytes = size + _SPARE_TEXT_BYTES
