"""Sums of readings by the minute, as they are written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.pointrollups import PointRollups
from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import Aggregate, step_function
from profd.daemon.timerange import TimeRange

STARTED_NS = 1_795_176_000 * SECOND_NS


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = database.create(tmp_path / "run.profd")
    yield made
    made.close()


Reading = tuple[float, float]


def add(sums: PointRollups, *readings: Reading) -> None:
    """Count the readings of a series, (seconds since the run's start, value)."""
    sums.begin()
    sums.add((1, STARTED_NS + round(at_s * SECOND_NS), value) for at_s, value in readings)


def rows(connection: sqlite3.Connection) -> list[tuple[int, Aggregate]]:
    """Return (minute, what the series was in it), in seconds for nanoseconds."""
    sql = (
        "SELECT minute, known_ns, area, least, most FROM point_minute WHERE series = 1 ORDER BY "
        "minute"
    )
    return [
        (minute, Aggregate(known_ns // SECOND_NS, area / SECOND_NS, least, most))
        for minute, known_ns, area, least, most in connection.execute(sql)
    ]


def finish(sums: PointRollups) -> None:
    sums.begin()
    sums.finish()


def summed(connection: sqlite3.Connection, *readings: Reading) -> list[tuple[int, Aggregate]]:
    sums = PointRollups(connection, STARTED_NS)
    add(sums, *readings)
    finish(sums)
    return rows(connection)


@pytest.mark.parametrize(
    ("readings", "sums"),
    [
        (
            [(20, 1.0), (50, 4.0), (80, 2.0), (130, 7.0)],
            [
                (0, Aggregate(60, 20.0 + 30 * 4.0 + 10 * 2.0, 1.0, 4.0)),
                (1, Aggregate(60, 20 * 2.0 + 40 * 7.0, 2.0, 7.0)),
                (2, Aggregate(10, 70.0, 7.0, 7.0)),
            ],
        ),
        (
            [*((float(at), 2.0) for at in range(1, 31)), (600, 5.0)],
            [(0, Aggregate(30, 60.0, 2.0, 2.0)), (9, Aggregate(3, 15.0, 5.0, 5.0))],
        ),
        ([(61, 3.0)], [(1, Aggregate(0, 0.0, 3.0, 3.0))]),
    ],
    ids=[
        "cut at the bounds",
        "what is not known is in no minute",
        "a single reading is known at its moment",
    ],
)
def test_minutes_have_the_sums_of_their_readings(
    connection: sqlite3.Connection, readings: list[Reading], sums: list[tuple[int, Aggregate]]
) -> None:
    assert summed(connection, *readings) == sums


def test_sums_say_what_the_readings_say(connection: sqlite3.Connection) -> None:
    """Whoever reads has the choice, and gets the same: of distances that change, and of pauses."""
    chance = random.Random(3)
    at_s, readings = 0.0, []
    for _ in range(2000):
        at_s += chance.choice(
            (0.17, 0.17, 1.0, 1.0, 5.0, 70.0, 400.0 if chance.random() < 0.05 else 1.0)
        )
        readings.append((at_s, chance.random()))
    whole = step_function(
        [PointRow(STARTED_NS + round(at * SECOND_NS), value) for at, value in readings]
    )
    found = dict(summed(connection, *readings))
    for minute in range(int(at_s) // 60 + 1):
        from_ns = STARTED_NS + minute * MINUTE_NS
        stored, read = (
            found.get(minute, Aggregate()),
            whole.over(TimeRange(from_ns, from_ns + MINUTE_NS)),
        )
        assert (stored.known_ns, stored.least, stored.most) == (
            read.known_ns // SECOND_NS,
            read.least,
            read.most,
        )
        assert stored.integral == pytest.approx(read.integral / SECOND_NS)


def test_a_minute_that_is_written_twice_keeps_its_peak(connection: sqlite3.Connection) -> None:
    sums = PointRollups(connection, STARTED_NS)
    add(sums, (0.5, 9.0))
    add(sums)
    sums.settle(STARTED_NS + 6 * MINUTE_NS)
    add(sums, (361, 1.0), (721, 1.0))
    finish(sums)
    assert rows(connection)[0] == (0, Aggregate(59, 59.0, 1.0, 9.0))


def test_a_series_that_has_ended_is_let_go_within_a_minute_of_five(
    connection: sqlite3.Connection,
) -> None:
    sums = PointRollups(connection, STARTED_NS)
    add(sums, (1, 2.0), (2, 2.0))
    add(sums)
    for minutes, written in ((5, []), (6, [(0, Aggregate(2, 4.0, 2.0, 2.0))])):
        sums.settle(STARTED_NS + minutes * MINUTE_NS)
        assert rows(connection) == written


def test_a_series_that_goes_on_after_a_pause_is_not_ended(connection: sqlite3.Connection) -> None:
    """Else its reading would hold for as long as the next one does, and not for three usual
    distances.
    """
    sums = PointRollups(connection, STARTED_NS)
    add(sums, *((float(at_s), 2.0) for at_s in range(1, 11)))
    add(sums, (450, 5.0))
    sums.settle(STARTED_NS + 450 * SECOND_NS)
    add(sums, (460, 5.0))
    finish(sums)
    assert rows(connection)[1:] == [(7, Aggregate(3 + 3, 30.0, 5.0, 5.0))]


def test_a_batch_that_failed_counts_for_nothing_and_loses_no_minute(
    connection: sqlite3.Connection,
) -> None:
    sums = PointRollups(connection, STARTED_NS)
    add(sums, (1, 1.0), (2, 3.0), (61, 3.0))
    connection.execute("BEGIN")
    add(sums, (62, 9.0))
    sums.settle(STARTED_NS + 10 * MINUTE_NS)
    connection.execute("ROLLBACK")
    sums.undo()
    add(sums, (62, 4.0))
    finish(sums)
    assert rows(connection)[0] == (0, Aggregate(60, 180.0 - 2, 1.0, 3.0))
    assert rows(connection)[1][1].most == 4.0
