"""How long a reading holds, and what a series was over a range of time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gappedrun import DEVICE, POWER, SECONDS, UTILIZATION, write_gapped_run
from support.synthetic import STARTED_NS

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.fleet.dataset import TABLES
from profd.daemon.fleet.tables import ROWS, RunSource
from profd.daemon.render.payload import take_payload
from profd.daemon.store import stepfunction
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow
from profd.daemon.timerange import TimeRange


def function(*readings: tuple[int, float]) -> stepfunction.StepFunction:
    return stepfunction.step_function([PointRow(at, value) for at, value in readings])


def spans(one: stepfunction.StepFunction) -> list[tuple[int, int, float]]:
    return [(step.start_ns, step.end_ns, step.value) for step in one.steps]


@pytest.mark.parametrize(
    ("readings", "held"),
    [
        ([(10, 9.0), (14, 1.0), (24, 1.0)], [(6, 10, 9.0), (10, 14, 1.0), (14, 24, 1.0)]),
        (
            [(0, 1.0), (10, 1.0), (20, 1.0), (100, 5.0)],
            [(-10, 0, 1.0), (0, 10, 1.0), (10, 20, 1.0), (70, 100, 5.0)],
        ),
        ([(60 * at, 1.0) for at in range(3)], [(-60, 0, 1.0), (0, 60, 1.0), (60, 120, 1.0)]),
        (
            [(0, 1.0), (10, 2.0), (10, 7.0), (5, 7.0), (20, 3.0)],
            [(-10, 0, 1.0), (0, 10, 2.0), (10, 20, 3.0)],
        ),
        ([(10, 4.0)], [(10, 10, 4.0)]),
    ],
    ids=[
        "since the one before",
        "three distances after a pause",
        "read seldom",
        "out of order",
        "a single one",
    ],
)
def test_a_reading_holds_for_the_time_since_the_one_before(
    readings: list[tuple[int, float]], held: list[tuple[int, int, float]]
) -> None:
    assert spans(function(*readings)) == held


def test_a_range_has_the_mean_of_what_is_known_in_it() -> None:
    one = function((10, 9.0), (20, 1.0), (30, 3.0))
    assert [one.mean(*span) for span in ((-10, 0), (30, 40), (15, 20), (25, 35))] == [
        (0.0, 0), (0.0, 0), (1.0, 5), (3.0, 5)
    ]  # fmt: skip
    assert one.mean(15, 30) == pytest.approx((7 / 3, 15))
    one = function(*((at, 1.0) for at in (*range(0, 100, 10), *range(200, 1100, 100))))
    begins = [step.start_ns for step in one.steps if step.end_ns >= 200]
    assert begins == [170, 270, 370, 470, 500, 600, 700, 800, 900]
    one = function((10, 4.0))
    assert one.period_ns is None
    assert (one.over(TimeRange(0, 20)), one.over(TimeRange(11, 20))) == (
        stepfunction.Aggregate(0, 0.0, 4.0, 4.0),
        stepfunction.Aggregate(),
    )
    assert (one.over(TimeRange(0, 20)).mean, one.over(TimeRange(11, 20)).mean) == (4.0, None)
    one = function((0, 9.0), (10, 2.0), (20, 5.0), (30, 8.0))
    assert one.over(TimeRange(5, 20)) == stepfunction.Aggregate(15, 2.0 * 5 + 5.0 * 10, 2.0, 5.0)
    assert one.over(TimeRange(5, 20)).mean == 4.0
    assert stepfunction.sum_aggregates(
        [one.over(TimeRange(5, 12)), one.over(TimeRange(12, 20))]
    ) == one.over(TimeRange(5, 20))
    assert stepfunction.sum_aggregates([]) == stepfunction.Aggregate()


def test_readings_that_come_one_by_one_say_the_same() -> None:
    builder = stepfunction.StepBuilder()
    assert builder.add(10, 1.0) == ()
    assert [step.start_ns for step in builder.add(14, 2.0)] == [6, 10]
    assert builder.add(14, 3.0) == ()
    assert builder.close() == ()


def test_where_holds_and_means_are_of_known_time_alone() -> None:
    cover = function((0, 1.0), (10, 0.0), (20, 1.0), (30, 0.0), (1000, 0.0)).where(
        lambda value: value == 0
    )
    assert list(cover.ranges()) == [(0, 10), (20, 30), (970, 1000)]
    mean = stepfunction.mean_function(
        [function((0, 0.0), (10, 1.0), (20, 1.0)), function((15, 0.0), (20, 0.5))]
    )
    assert spans(mean) == [(-10, 0, 0.0), (0, 10, 1.0), (10, 15, 0.5), (15, 20, 0.75)]
    assert mean.period_ns == 10


def test_a_cursor_says_what_the_intervals_say() -> None:
    assert stepfunction.IntervalCursor(stepfunction.IntervalSet()).between(0, 10) == 0
    chance = random.Random(7)
    for _ in range(50):
        cover, at_ns = stepfunction.IntervalSet(), 0
        for _ in range(chance.randint(0, 20)):
            at_ns += chance.randint(0, 50)
            cover.add(at_ns, at_ns + chance.randint(0, 60))
        cursor, from_ns = stepfunction.IntervalCursor(cover), -10
        for _ in range(200):
            from_ns += chance.randint(0, 12)
            to_ns = from_ns + chance.choice((0, 1, 5, 40, 400))
            assert cursor.between(from_ns, to_ns) == cover.between(from_ns, to_ns)


def test_the_data_set_and_the_report_know_a_series_for_as_long_as_its_readings_say(
    tmp_path: Path,
) -> None:
    with RunReader(write_gapped_run(tmp_path / "run.profd")) as reader:
        rows = [
            dict(zip(TABLES["series"], row.values, strict=True))
            for row in ROWS["series"](RunSource(reader))
        ]
        shown = take_payload(reader, PhaseIndex(reader), ())["gpus"][0]["utilization"]
        for name in (POWER, UTILIZATION):
            series = reader.find_series(name, device=DEVICE)
            assert series is not None
            expected = reader.steps(series.id).over(
                TimeRange(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS)
            )
            found: list[dict[str, Any]] = [
                row for row in rows if (row["name"], row["device"]) == (name, DEVICE)
            ]
            assert sum(row["known_ns"] for row in found) == expected.known_ns
            assert sum(row["known_ns"] * row["mean"] for row in found) == pytest.approx(
                expected.integral
            )
            assert min(row["least"] for row in found) == expected.least
            assert max(row["most"] for row in found) == expected.most
    known_ms = sum(shown["steps_ms"]) - sum(shown["gaps_ms"])
    assert known_ms == pytest.approx(expected.known_ns / MILLISECOND_NS, rel=1e-3)


_ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12).map(sorted)


def cover_of(ranges: list[tuple[int, int]]) -> stepfunction.IntervalSet:
    cover = stepfunction.IntervalSet()
    for start, length in ranges:
        cover.add(start, start + length)
    return cover


@given(_ranges, st.integers(-5, 90), st.integers(-5, 90))
def test_each_moment_counts_once(ranges: list[tuple[int, int]], from_ns: int, to_ns: int) -> None:
    covered = {moment for start, length in ranges for moment in range(start, start + length)}
    cover = cover_of(ranges)

    assert cover.length_ns == len(covered)
    assert cover.between(from_ns, to_ns) == len(covered & set(range(from_ns, to_ns)))
    assert (cover.start_ns, cover.end_ns) == (
        (min(covered), max(covered) + 1) if covered else (None, None)
    )


@given(_ranges)
def test_edges_tell_all_of_it(ranges: list[tuple[int, int]]) -> None:
    cover = cover_of(ranges)

    for at_ns, covered in cover.edges():
        assert cover.until(at_ns) == covered
    assert not cover.edges() or cover.edges()[-1][1] == cover.length_ns
