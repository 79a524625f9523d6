"""A series over a long time, by the minute: its mean, its highest value, its extremes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cost.longrun import STARTED_NS, describe, run_started

from profd.daemon.analyze.series import take_course, total_of
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import EVER, TimeRange

SECONDS = 1230
NAME = "host_cpu_share"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    """Give a run that is being written, with a reading each second: its second within the minute,
    and a peak.
    """
    tables = Tables(database.create(tmp_path / "run.profd"), describe)
    tables.begin(run_started())
    for second in range(SECONDS):
        value = 1000.0 if second == 700 else float(second % 60)
        tables.commit([PointsTaken(STARTED_NS + second * SECOND_NS, (Point(NAME, value),))])
    with RunReader(tmp_path / "run.profd") as reader:
        yield reader
    tables.close()


def ns(second: float) -> int:
    return STARTED_NS + round(second * SECOND_NS)


@pytest.mark.parametrize(
    ("from_s", "to_s"), [(None, None), (0.0, 1200.0), (12.5, 1000.5), (None, 1225.0)]
)
def test_minutes_say_what_the_readings_say(
    reader: RunReader, from_s: float | None, to_s: float | None
) -> None:
    series = reader.list_series()[0].id
    from_ns, to_ns = (None if at_s is None else ns(at_s) for at_s in (from_s, to_s))
    time = TimeRange(from_ns or EVER.from_ns, to_ns or EVER.to_ns)
    by_minutes = take_course(reader, series, time)
    by_readings = take_course(reader, series, time, 1 << 40)
    assert by_minutes.minutes
    assert not by_readings.minutes
    total = total_of(reader, series, time)
    assert total == pytest.approx(by_readings.head.total())
    assert total.most == 1000.0 if to_s is None or to_s > 700 else 59.0


def test_the_newest_minute_and_few_minutes_are_read_one_by_one(reader: RunReader) -> None:
    total = total_of(reader, reader.list_series()[0].id, TimeRange(ns(10.5), ns(12.5)))
    assert total == (2 * SECOND_NS, (0.5 * 11 + 12 + 0.5 * 13) * SECOND_NS, 11.0, 13.0)
    course = take_course(reader, reader.list_series()[0].id)
    assert [one.minute for one in course.minutes] == list(range(20))
    assert len(list(course.tail.readings())) == SECONDS % 60
    course = take_course(reader, reader.list_series()[0].id, TimeRange(ns(0), ns(300)))
    assert (len(list(course.head.readings())), course.minutes) == (300, ())


def test_a_course_has_the_mean_and_the_extremes_of_each_minute(reader: RunReader) -> None:
    steps = list(take_course(reader, reader.list_series()[0].id).steps())
    assert (steps[0].start_ns, steps[0].end_ns) == (ns(0), ns(60))
    assert steps[0].value == pytest.approx(29.5)
    assert [step.end_ns for step in steps[-2:]] == [ns(SECONDS - 2), ns(SECONDS - 1)]
    extremes = take_course(
        reader, reader.list_series()[0].id, TimeRange(ns(600), ns(1200))
    ).extremes(STARTED_NS)
    times = [point.at_ns for point in extremes]
    assert times == sorted(times)
    assert [point.value for point in extremes] == [0.0, 59.0, 0.0, 1000.0, *[0.0, 59.0] * 8]
