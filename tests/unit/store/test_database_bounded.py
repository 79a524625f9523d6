"""Files that hold less than they give: each query costs no more than the file's size accounts for."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from profd.daemon.store.database import LEAST_ROW_BYTES, BoundedConnection


def bounded(path: Path) -> contextlib.closing[BoundedConnection]:
    connection = sqlite3.connect(path, factory=BoundedConnection)
    connection.bound(path)
    return contextlib.closing(connection)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of the smallest rows there are, packed as tightly as SQLite can."""
    path = tmp_path / "small.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE row (one)")
        connection.executemany("INSERT INTO row (rowid, one) VALUES (?, NULL)", ((at,) for at in range(100)))
        connection.executemany("INSERT INTO row VALUES (?)", ((None,) for _ in range(50_000)))
    return path


def test_all_that_a_file_holds_is_given(path: Path) -> None:
    with bounded(path) as connection:
        assert len(connection.rows("SELECT one FROM row")) == 50_100
        assert path.stat().st_size / 50_100 >= LEAST_ROW_BYTES


def test_more_rows_than_a_file_can_hold_are_an_error(path: Path) -> None:
    with bounded(path) as connection, pytest.raises(sqlite3.DatabaseError, match="gives more than its size"):
        connection.rows("SELECT one.rowid FROM row AS one, row AS other LIMIT 1000000")


def test_more_text_than_a_file_can_hold_is_an_error(path: Path) -> None:
    with bounded(path) as connection, pytest.raises(sqlite3.DatabaseError, match="gives more than its size"):
        connection.rows("SELECT zeroblob(10000) FROM row")


def test_work_without_end_is_an_error_and_the_next_query_is_answered(path: Path) -> None:
    with bounded(path) as connection:
        with pytest.raises(sqlite3.DatabaseError, match="more work than its size"):
            connection.rows("SELECT max(one.rowid + two.rowid + three.rowid) FROM row AS one, row AS two, row AS three")
        assert connection.rows("SELECT count(one) FROM row") == [(0,)]


def test_other_failures_keep_their_reason(path: Path) -> None:
    with bounded(path) as connection, pytest.raises(sqlite3.OperationalError, match="no such table"):
        connection.rows("SELECT 1 FROM missing")


def test_bounds_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE row (one)")
        writer.commit()
        with bounded(path) as connection:
            assert connection.rows("SELECT one FROM row") == []
            writer.executemany("INSERT INTO row VALUES (?)", ((None,) for _ in range(100_000)))
            writer.commit()
            assert len(connection.rows("SELECT one FROM row")) == 100_000
            assert connection.rows("SELECT sum(one IS NULL) FROM row") == [(100_000,)]
