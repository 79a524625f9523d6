"""Whether what a file calls a run's tables are those of ``schema.sql``: its queries may mean nothing else.

A view, a generated column or an index on an expression would run what its author wrote, for as long as it likes.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

TEXT = Path(__file__).with_name("schema.sql").read_text()
"""What makes the tables of a new run file."""
_ENTRIES = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_COLUMNS = "SELECT name, type, pk, hidden, dflt_value FROM pragma_table_xinfo(?)"
_INDEX_COLUMNS = "SELECT name FROM pragma_index_xinfo(?) WHERE key"


class _Schema(NamedTuple):
    """The columns of each table, and by name each index: its table and columns."""

    tables: Mapping[str, frozenset[tuple[Any, ...]]]
    indexes: Mapping[str, tuple[str, list[tuple[Any, ...]]]]


def check(connection: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError where a file has anything but tables, columns and indexes that a run file has.

    An older file may lack some.
    """
    for kind, name, table, text in connection.execute(_ENTRIES).fetchall():
        if not _is_own(connection, kind, name, table, text):
            raise sqlite3.DatabaseError(f"its {kind} {name} is none that a run file has")


def _is_own(connection: sqlite3.Connection, kind: str, name: str, table: str, text: str | None) -> bool:
    tables, indexes = _own()
    if kind == "index" and text is None:  # SQLite's own, of a primary key or UNIQUE
        return table in tables
    if kind == "index":
        # Of an expression the name is NULL; a part of the rows would take a WHERE in its text.
        columns = connection.execute(_INDEX_COLUMNS, (name,)).fetchall()
        return indexes.get(name) == (table, columns) and " WHERE " not in str(text).upper()
    # A virtual table says so in its text, and is asked nothing: that would call its module.
    if kind != "table" or name not in tables or not str(text).startswith("CREATE TABLE "):
        return False
    return tables[name].issuperset(connection.execute(_COLUMNS, (name,)))


@functools.cache
def _own() -> _Schema:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TEXT)
        entries = connection.execute(_ENTRIES).fetchall()
        return _Schema(
            {name: frozenset(connection.execute(_COLUMNS, (name,))) for kind, name, _, _ in entries if kind == "table"},
            {
                name: (table, connection.execute(_INDEX_COLUMNS, (name,)).fetchall())
                for kind, name, table, text in entries
                if kind == "index" and text is not None
            },
        )
