"""Sums of readings by the minute, as they are written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.sums.points import PointSums

STARTED_NS = 1_795_176_000 * SECOND_NS


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = database.create(tmp_path / "run.profd")
    yield made
    made.close()


def summed(connection: sqlite3.Connection, *readings: tuple[float, float]) -> list[tuple[float, ...]]:
    """Return minute, number, least and most of a series read at these seconds, in the order of writing."""
    sums = PointSums(connection, STARTED_NS)
    for at_s, value in readings:
        sums.add(1, STARTED_NS + round(at_s * SECOND_NS), value)
    sums.finish()
    columns = "minute, readings, least, most"
    return connection.execute(f"SELECT {columns} FROM point_minute WHERE series = 1 ORDER BY minute").fetchall()


def test_each_minute_has_its_least_and_its_most(connection: sqlite3.Connection) -> None:
    assert summed(connection, (0, 5.0), (30, 9.0), (59.9, 7.0), (60, 1.0)) == [(0, 3, 5.0, 9.0), (1, 1, 1.0, 1.0)]


def test_a_minute_that_is_written_twice_keeps_its_peak(connection: sqlite3.Connection) -> None:
    assert summed(connection, (0, 2.0), (30, 9.0), (61, 1.0), (40, 5.0)) == [(0, 3, 2.0, 9.0), (1, 1, 1.0, 1.0)]
