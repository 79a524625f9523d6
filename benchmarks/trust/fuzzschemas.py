"""Changes the schema of a run file: into what an older profd wrote, into what asks for endless
work, into nonsense.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

from support.hostilefiles import link_many_times
from trust.mutations import mutate

_ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {columns} FROM n"
)
_LARGE = "zeroblob(900000000)"
_EXPRESSIONS = (
    _LARGE,
    "randomblob(900000000)",
    "hex(zeroblob(400000000))",
    "1",
    "NULL",
)
_MODULES = ("fts5(id, at_ns, text)", "rtree(id, one, other)", "dbstat", "fts3(text)")

_MOST_BYTES, _MOST_WORK = 2 << 20, 50_000
Change = Callable[[sqlite3.Connection, str, random.Random], None]


def change_schema(path: Path, chance: random.Random) -> None:
    """Change the schema of the run file at ``path`` in one to three ways."""
    for _ in range(chance.randint(1, 3)):
        with contextlib.suppress(sqlite3.Error, ValueError, TypeError):
            _change(path, chance)
    if chance.randrange(4) == 0:
        with contextlib.suppress(sqlite3.Error, ValueError, TypeError, IndexError):
            link_many_times(path, chance.choice(_tables(path)), chance.choice((1, 2, 3, 6)))


def _tables(path: Path) -> list[str]:
    """Return the tables that are still ones: reading a computed one would take the writer of the
    file as long.
    """
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
        )
        return [name for (name,) in found.fetchall() if not _is_computed(connection, name)]


def _is_computed(connection: sqlite3.Connection, table: str) -> bool:
    return any(row[6] for row in connection.execute(f"PRAGMA table_xinfo({table})"))


def _change(path: Path, chance: random.Random) -> None:
    table = chance.choice(_tables(path))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        # What is written here is to cost its readers much, and its writer little.
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        connection.set_progress_handler(lambda: True, _MOST_WORK)
        connection.execute("PRAGMA writable_schema = ON")
        chance.choice(_CHANGES)(connection, table, chance)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] or ["id"]


def _lose_table(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(f"DROP TABLE {table}")


def _lose_column(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(
        f"ALTER TABLE {table} DROP COLUMN {chance.choice(_columns(connection, table))}"
    )


def _rename(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(
        f"ALTER TABLE {table} RENAME COLUMN {chance.choice(_columns(connection, table))} TO other"
    )


def _lose_index(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(
        f"DROP INDEX {chance.choice(('recording_by_time', 'series_by_name', 'operator_by_window'))}"
    )


def _view(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    columns = _columns(connection, table)
    values = ", ".join(
        f"{chance.choice(('i', '1', chance.choice(_EXPRESSIONS)))} AS {name}" for name in columns
    )
    connection.execute(f"DROP TABLE {table}")
    connection.execute(
        f"CREATE VIEW {chance.choice((table, 'other'))} AS {_ENDLESS.format(columns=values)}"
    )


def _view_of_many(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    columns = ", ".join(f"a.{name} AS {name}" for name in _columns(connection, table))
    connection.execute(f"ALTER TABLE {table} RENAME TO source")
    connection.execute(
        f"CREATE VIEW {table} AS SELECT {columns} FROM source a, source b, source c, source d, "
        "source e"
    )


def _computed(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    column, kind = chance.choice(_columns(connection, table)), chance.choice(("VIRTUAL", "STORED"))
    with contextlib.suppress(sqlite3.Error):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute(
        f"ALTER TABLE {table} ADD COLUMN {column} AS ({chance.choice(_EXPRESSIONS)}) {kind}"
    )


def _computed_anew(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    columns = _columns(connection, table)
    computed = chance.choice(columns)
    texts = [
        f"{name} AS ({chance.choice(_EXPRESSIONS)})" if name == computed else name
        for name in columns
    ]
    stored = [name for name in columns if name != computed]
    rows = connection.execute(f"SELECT {', '.join(stored)} FROM {table} LIMIT 20").fetchall()
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"CREATE TABLE {table} ({', '.join(texts)})")
    marks = ", ".join("?" * len(stored))
    connection.executemany(f"INSERT INTO {table} ({', '.join(stored)}) VALUES ({marks})", rows)


def _default(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(
        f"ALTER TABLE {table} ADD COLUMN other DEFAULT '{'x' * chance.choice((1, 100_000))}'"
    )


def _trigger(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(
        f"CREATE TRIGGER other AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"
    )


def _index(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    column = chance.choice(_columns(connection, table))
    of = chance.choice(
        (f"length(hex({column}))", column, f"{column} COLLATE NOCASE", f"{column} DESC")
    )
    where = chance.choice(("", f" WHERE {column} > 5"))
    name = chance.choice(("other", "recording_by_time"))
    connection.execute(f"DROP INDEX IF EXISTS {name}")
    connection.execute(f"CREATE INDEX {name} ON {table} ({of}){where}")


def _virtual(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute(f"DROP TABLE {table}")
    connection.execute(
        f"CREATE VIRTUAL TABLE {chance.choice((table, 'other'))} USING {chance.choice(_MODULES)}"
    )


def _statistics(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    connection.execute("ANALYZE")
    connection.execute(
        "UPDATE sqlite_stat1 SET stat = ?", (chance.choice(("1", "1 1", "9999999999 1", "x", "")),)
    )


def _other_text(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    (text,) = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE name = ?", (table,)
    ).fetchone()
    changed = chance.choice(
        (
            mutate(text.encode(), chance).decode(errors="replace"),
            text.replace(
                "INTEGER",
                chance.choice(("TEXT", "BLOB", "INTEGER COLLATE NOCASE", "REAL CHECK (0)")),
            ),
            text.replace(") WITHOUT ROWID", ")"),
            f"{text} STRICT",
            text.replace(table, chance.choice(("event", "sqlite_other", "'a b'"))),
            "x" * 1_000_000,
            f"CREATE TABLE {table} ({', '.join(f'c{n}' for n in range(3000))})",
            f"CREATE TABLE {table} AS {_ENDLESS.format(columns='i')}",
        )
    )
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (changed, table))


def _other_place(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    page = chance.choice((0, 1, chance.randint(1, pages), pages + 1, 1 << 31, -1))
    connection.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (page, table))


def _other_entry(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    column = chance.choice(("type", "name", "tbl_name", "sql"))
    value = chance.choice(
        (None, "", "table", "view", "index", "trigger", "meta", table.upper(), b"\xff", 1 << 62)
    )
    connection.execute(f"UPDATE sqlite_schema SET {column} = ? WHERE name = ?", (value, table))


_CHANGES: tuple[Change, ...] = (
    _lose_table,
    _lose_column,
    _rename,
    _lose_index,
    _view,
    _view_of_many,
    _computed,
    _computed_anew,
    _default,
    _trigger,
    _index,
    _virtual,
    _statistics,
    _other_text,
    _other_place,
    _other_entry,
)
