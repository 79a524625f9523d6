"""An open run file: its rows as they are stored, each checked for its type. Knows no row's meaning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from profd.daemon.store import database
from profd.daemon.store.rows import Count
from profd.daemon.store.rowtypes import checked


class RunFile:
    """A run file, open for reading.

    Every method raises RunUnreadable where the file turns out to be damaged.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``; raises RunUnreadable where it is no readable run file."""
        self.path = path
        self._connection = database.open_readonly(path)
        self._data_version: int | None = None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def changed(self) -> bool:
        """Say whether anything was committed since this was last asked; True at first. Costs a look at the log."""
        version = self.version()
        seen, self._data_version = self._data_version, version
        return version != seen

    def version(self) -> int:
        """Return a number that is another one after anything was committed by others."""
        return int(self._query("PRAGMA data_version")[0][0])

    def meta(self) -> dict[str, Any]:
        """Return what the file says of the run as a whole, by name."""
        return dict(self._query("SELECT name, value FROM meta"))

    def newest_id(self, table: str) -> int:
        """Return the highest id of a table, 0 where it is empty."""
        return int(self.select(_Id, f"SELECT coalesce(max(id), 0) FROM {table}")[0][0])

    def has_table(self, name: str) -> bool:
        """Say whether the file has a table: an older one may lack it."""
        return bool(self._query("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def select(self, row: type[msgspec.Struct], sql: str, *values: int | str, **named: int) -> list[tuple[Any, ...]]:
        """Return what a query gives for rows of this type; raises RunUnreadable where a value is of another type."""
        with database.reading(self.path):
            return checked(row, self._query(sql, *values, **named))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Read the file as it is now until the end, whatever is written meanwhile."""
        with database.reading(self.path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.rollback()

    def _query(self, sql: str, *values: int | str, **named: int) -> list[tuple[Any, ...]]:
        with database.reading(self.path):
            return self._connection.rows(sql, named or values)


class _Id(msgspec.Struct, frozen=True):
    id: Count


def columns_of(row: type[msgspec.Struct]) -> str:
    """Return the columns of a table whose rows have the fields of ``row``, as SQL."""
    return ", ".join(row.__struct_fields__)


def time_range(column: str, from_ns: int | None, to_ns: int | None) -> tuple[str, list[int]]:
    """Return a condition on a column of times, as SQL, and its values."""
    conditions: list[str] = ["1"]
    values: list[int] = []
    if from_ns is not None:
        conditions.append(f"{column} >= ?")
        values.append(from_ns)
    if to_ns is not None:
        conditions.append(f"{column} < ?")
        values.append(to_ns)
    return " AND ".join(conditions), values
