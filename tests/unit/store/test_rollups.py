"""Columns of time: stacks cut at their bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from cost import longrun
from support.synthetic import (
    MAIN,
    MAIN_TID,
    STARTED_NS,
    main_process,
    recording,
    write_records,
    write_run,
)
from support.training_stacks import BACKWARD, DATA_WAIT

from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.store import rollups
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken, RecordingTaken
from profd.daemon.store.rows import StackTotal
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import EVER, TimeRange


def test_an_interval_is_cut_at_the_bounds_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "run.profd"
    thread = (MAIN_TID, "MainThread", True, ((DATA_WAIT, 500), (BACKWARD, 2500)))
    write_records(
        path, [main_process(), recording(MAIN, STARTED_NS, (thread,), duration_ns=3 * SECOND_NS)]
    )
    with RunReader(path) as reader:
        found = rollups.stack_times(reader, rollups.Grid(STARTED_NS, SECOND_NS), 0, 5, [1])
        later = rollups.stack_times(reader, rollups.Grid(STARTED_NS, SECOND_NS), 2, 5, [1])
    half = SECOND_NS // 2
    assert sorted((one.column, one.time_ns) for one in found) == [
        (0, half),
        (0, half),
        (1, SECOND_NS),
        (2, SECOND_NS),
    ]
    assert [(one.column, one.time_ns) for one in later] == [(2, SECOND_NS)]


SECONDS = 185
A_MINUTE = (60 * 100, MINUTE_NS)
"""Samples and time of a minute at 100 Hz."""


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("sums") / "a.profd", seconds=SECONDS, workers=1)


@pytest.fixture
def reader(run_file: Path) -> Iterator[RunReader]:
    with RunReader(run_file) as reader:
        yield reader


def by_minute(rows: list[rollups.StackMinuteRow]) -> dict[int, tuple[int, int]]:
    """Return samples and time of all stacks together by minute."""
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        samples, time_ns = found.get(row.minute, (0, 0))
        found[row.minute] = samples + row.samples, time_ns + row.duration_ns
    return found


def test_minutes_are_added_together_from_the_runs_start_on(reader: RunReader) -> None:
    thread = next(row.id for row in reader.threads.values() if row.os_tid == MAIN_TID)
    assert by_minute(rollups.stack_minutes(reader, [thread], range(3))) == dict.fromkeys(
        range(3), A_MINUTE
    )
    assert rollups.stack_minutes(reader, [], range(3)) == []
    two = (2 * A_MINUTE[0], 2 * A_MINUTE[1])
    assert by_minute(rollups.stack_minutes(reader, [thread], range(3), 2)) == {0: two, 2: A_MINUTE}
    # What is asked for begins in the midst of the first two.
    assert by_minute(rollups.stack_minutes(reader, [thread], range(1, 3), 2)) == {
        0: A_MINUTE,
        2: A_MINUTE,
    }
    [one] = reader.rollups.split(TimeRange(STARTED_NS, STARTED_NS + 3 * MINUTE_NS), [thread])
    assert by_minute(reader.rollups.by_stack(one)) == {0: (3 * A_MINUTE[0], 3 * A_MINUTE[1])}
    summed = {
        row.stack: (row.samples, row.duration_ns)
        for row in rollups.stack_minutes(reader, [thread], range(1, 2))
    }
    from_ns = STARTED_NS + MINUTE_NS
    intervals = reader.stack_totals(TimeRange(from_ns, from_ns + MINUTE_NS), {thread})
    assert summed == {row.stack: (row.samples, row.duration_ns) for row in intervals}


def test_minutes_name_summed_processes_with_their_means_and_ends(reader: RunReader) -> None:
    summed = reader.rollups.processes()
    assert set(summed) == set(reader.processes)
    for row in summed.values():
        end_ns = STARTED_NS + SECONDS * SECOND_NS
        assert (row.from_ns, row.to_ns, reader.rollups._ends_ns[row.process]) == (0, end_ns, end_ns)
    assert rollups.count_stack_minutes(reader) == len(
        rollups.stack_minutes(reader, list(reader.threads), range(100))
    )
    series = next(
        row.id for row in reader.list_series() if row.name == "rss_bytes" and row.process == 1
    )
    first, second, _ = rollups.point_minutes(reader, series, range(3))
    # A reading a second, the first one after a second, each 1 MB above the one before it.
    assert (first.minute, first.readings, first.least, first.most) == (0, 60, 900e6, 959e6)
    assert (second.minute, second.readings, second.least, second.most) == (1, 60, 960e6, 1019e6)
    assert second.aggregate.mean == pytest.approx(989.5e6)


def at(second: int) -> int:
    return STARTED_NS + second * SECOND_NS


def by_stack(totals: list[StackTotal]) -> list[tuple[int, int, int, int]]:
    return sorted((row.thread, row.stack, row.samples, row.duration_ns) for row in totals)


def test_a_range_is_split_into_whole_minutes_and_what_lies_beside(
    live: Tables, tmp_path: Path
) -> None:
    live.commit(
        [longrun.recording(0, at(second), random.Random(1)) for second in range(0, 300, 10)]
    )
    live.finish()
    with RunReader(tmp_path / "live.profd") as reader:
        [one] = reader.rollups.split(TimeRange(at(30), at(270)), reader.threads)
        assert (one.minutes, one.is_settled) == (range(1, 4), True)
        assert [(rest.from_ns, rest.to_ns) for rest in one.rest] == [
            (at(30), at(60)),
            (at(240), at(270)),
        ]
        little = TimeRange(at(59), at(59 + 60 * rollups.LEAST_MINUTES))
        [short] = reader.rollups.split(little, reader.threads)
        assert not short.minutes
        [whole] = reader.rollups.split(EVER, reader.threads)
        assert not whole.rest


def test_a_reader_that_is_asked_again_while_a_run_grows_misses_nothing(
    live: Tables, tmp_path: Path
) -> None:
    live.commit(
        [longrun.recording(0, at(second), random.Random(1)) for second in range(0, 200, 10)]
    )
    chance = random.Random(4)
    late: list[RecordingTaken] = []
    with RunReader(tmp_path / "live.profd") as reader:
        for second in range(200, 800, 20):
            at_ns = at(second)
            taken = [longrun.recording(0, at_ns + part * SECOND_NS, chance) for part in (0, 10)]
            late = [taken.pop(), *late] if second in (400, 700) else late
            live.commit(taken)
            if second in (500, 720):
                live.commit([late.pop()])
            if second in (620, 640):  # it overlaps the one before
                live.commit([longrun.recording(0, at_ns + 15 * SECOND_NS, chance)])
            if second == 560:  # the sums begin anew
                live.commit(
                    [PointsTaken(at_ns, (Point("gpu_utilization_share", 1.0, device="gpu1"),))]
                )
            if second % 40 == 0:  # all that was recorded is in the sums
                live.commit([PointsTaken(at_ns + 45 * SECOND_NS, (Point("host_cpu_share", 0.5),))])
            reader.refresh()
            ends = TimeRange(to_ns=at_ns), TimeRange(to_ns=at(401))
            for time in (EVER, TimeRange(at(90)), *ends):
                found, expected = reader.totals(time), reader.stack_totals(time)
                assert by_stack(found) == by_stack(expected)
