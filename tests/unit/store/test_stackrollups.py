from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from cost import longrun
from cost.longrun import STARTED_NS, identity, write_long_run
from msgspec.structs import replace

from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.profile import selected_totals, utilization_by_stack
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken, Record, RecordingTaken
from profd.daemon.store.rollups import ENDED_LONG_AGO_NS
from profd.daemon.store.rows import StackTotal
from profd.daemon.store.stackrollups import LAG_NS, MANY_PROCESSES, StackRollups
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import EVER

PROCESSES = 10 * MANY_PROCESSES


@pytest.fixture
def connection(tmp_path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(database.create(tmp_path / "run.profd"))


def test_processes_that_ended_are_not_kept_in_mind(
    connection: contextlib.closing[sqlite3.Connection],
) -> None:
    with connection as store:
        sums = StackRollups(store, 0)
        for process in range(1, PROCESSES + 1):
            start_ns = process * 10 * SECOND_NS
            end_ns = start_ns + 5 * SECOND_NS
            store.execute(
                "INSERT INTO process (id, pid, start_ticks, command, role, seen_ns, ended_ns) "
                "VALUES (?,?,?,?,?,?,?)",
                (process, process, process, "[]", "worker", start_ns, end_ns),
            )
            sums.recorded(process, start_ns, end_ns, [])
            sums.settle(end_ns + LAG_NS)
            ended_lately = ENDED_LONG_AGO_NS // (10 * SECOND_NS) + 2
            assert len(sums._summed) <= MANY_PROCESSES + 2 * ended_lately
        (summed,) = store.execute("SELECT count(*) FROM summed_process").fetchone()

    assert summed == PROCESSES


SECONDS = 480
LATE_NS = STARTED_NS + 401 * SECOND_NS
IDLE, ON_CPU = Condition("gpu-idle"), Condition("on-cpu")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    return write_long_run(folder / "run.profd", seconds=SECONDS, ranks=2, workers=1)


@pytest.fixture(scope="module")
def reader(path: Path) -> Iterator[RunReader]:
    with RunReader(path) as reader:
        yield reader


@pytest.fixture(scope="module")
def unsummed(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    """Give the same run as a profd without sums wrote it."""
    copy = tmp_path_factory.mktemp("unsummed") / "old.profd"
    copy.write_bytes(path.read_bytes())
    connection = sqlite3.connect(copy)
    for table in ("stack_minute", "stack_hour", "summed_process", "point_minute"):
        connection.execute(f"DROP TABLE {table}")
    connection.commit()
    connection.close()
    with RunReader(copy) as reader:
        yield reader


def by_stack(totals: list[StackTotal]) -> list[tuple[int, int, int, int]]:
    return sorted(
        (row.thread, row.stack, row.samples, row.duration_ns) for row in totals if row.duration_ns
    )


@pytest.mark.parametrize("when", [(), (IDLE,), (ON_CPU,), (IDLE, ON_CPU)])
@pytest.mark.parametrize(
    ("from_s", "to_s"), [(None, None), (0.0, 420.0), (31.7, 445.2), (None, 400.5), (100.0, None)]
)
def test_sums_tell_what_reading_one_by_one_tells(
    reader: RunReader,
    unsummed: RunReader,
    when: tuple[Condition, ...],
    from_s: float | None,
    to_s: float | None,
) -> None:
    selection = selected(from_s, to_s, when)
    assert any(
        one.minutes for one in reader.rollups.split(selection.time, selection.threads(reader))
    )
    found, expected = (by_stack(selected_totals(one, selection)) for one in (reader, unsummed))
    assert expected
    assert found == expected


def test_sums_tell_how_busy_the_gpus_were(reader: RunReader, unsummed: RunReader) -> None:
    selection = selected(31.7, 445.2, ())
    found, expected = (
        utilization_by_stack(one, GpuTracks(one), selection) for one in (reader, unsummed)
    )
    assert found.keys() == expected.keys()
    for stack, busy in expected.items():
        assert found[stack].known_ns == busy.known_ns
        assert found[stack].utilization == pytest.approx(busy.utilization)


def recordings(seconds: int) -> Iterator[Record]:
    chance = random.Random(1)
    for second in range(0, seconds, 10):
        yield longrun.recording(0, STARTED_NS + second * SECOND_NS, chance)
        for number in range(60):
            at_ns = STARTED_NS + second * SECOND_NS + (number + 1) * SECOND_NS // 6
            yield PointsTaken(
                at_ns, (Point("gpu_utilization_share", chance.choice((0.0, 0.5)), device="gpu0"),)
            )


def test_what_is_not_summed_yet_is_read_one_by_one(live: Tables, tmp_path: Path) -> None:
    for record in recordings(400):
        live.commit([record])
    with RunReader(tmp_path / "live.profd") as reader:
        [one] = reader.rollups.split(EVER, reader.threads)
        assert one.rest
        assert one.minutes.stop == 6
        assert (
            sum(row.duration_ns for row in selected_totals(reader, Selection()))
            == 2 * 400 * SECOND_NS
        )


@pytest.mark.parametrize(
    "contradiction",
    [
        PointsTaken(LATE_NS, (Point("gpu_utilization_share", 1.0, device="gpu1"),)),
        PointsTaken(
            LATE_NS,
            (
                Point("gpu_utilization_share", 1.0, device="gpu1"),
                Point("gpu_process_memory_bytes", 1.0, identity(0), device="gpu1"),
            ),
        ),
        longrun.recording(0, STARTED_NS - 10 * SECOND_NS, random.Random(2)),
    ],
    ids=["there is one GPU more", "it holds memory of another GPU", "a recording comes late"],
)
def test_sums_that_no_longer_hold_begin_anew(
    live: Tables, tmp_path: Path, contradiction: Record
) -> None:
    live.commit(list(recordings(400)))
    live.commit([contradiction])
    later_ns = STARTED_NS + 800 * SECOND_NS
    live.commit([longrun.recording(0, STARTED_NS + 400 * SECOND_NS, random.Random(3))])
    live.commit([PointsTaken(later_ns, (Point("host_cpu_share", 0.5),))])
    with RunReader(tmp_path / "live.profd") as reader:
        threads = frozenset(reader.threads)
        [one] = reader.rollups.split(EVER, threads)
        assert one.rest
        expected = reader.stack_totals()
        assert by_stack(selected_totals(reader, Selection())) == by_stack(expected)


def test_hours_are_the_sums_of_their_minutes(live: Tables, tmp_path: Path) -> None:
    chance = random.Random(1)
    for minute in range(190):
        start_ns = STARTED_NS + minute * 60 * SECOND_NS
        live.commit([longrun.recording(rank, start_ns, chance, SECOND_NS) for rank in range(2)])
    with RunReader(tmp_path / "live.profd") as reader:
        for from_s, to_s in ((None, None), (0.0, 7200.0), (1800.5, 11_000.2), (None, 9000.0)):
            selection = selected(from_s, to_s, ())
            assert all(one.hours for one in reader.rollups.split(selection.time, reader.threads))
            assert by_stack(selected_totals(reader, selection)) == by_stack(
                reader.stack_totals(selection.time)
            )


def selected(from_s: float | None, to_s: float | None, when: tuple[Condition, ...]) -> Selection:
    from_ns, to_ns = (
        None if at_s is None else STARTED_NS + round(at_s * SECOND_NS) for at_s in (from_s, to_s)
    )
    return Selection(from_ns, to_ns, when=when)


def test_a_finished_run_is_summed_to_its_end(reader: RunReader) -> None:
    assert [one.rest for one in reader.rollups.split(EVER, reader.threads) if one.rest] == []


def test_of_intervals_that_start_together_the_sums_have_the_one_that_the_file_has(
    live: Tables, tmp_path: Path
) -> None:
    taken = [record for record in recordings(400) if isinstance(record, RecordingTaken)]
    main, *others = taken[3].threads
    twice = main.intervals[5]
    again = replace(main, intervals=(*main.intervals, replace(twice, samples=twice.samples + 7)))
    taken[3] = replace(taken[3], threads=(again, *others))
    live.commit([*taken, PointsTaken(LATE_NS + 60 * SECOND_NS, (Point("host_cpu_share", 0.5),))])
    with RunReader(tmp_path / "live.profd") as reader:
        [one] = reader.rollups.split(EVER, reader.threads)
        assert one.minutes
        assert by_stack(selected_totals(reader, Selection())) == by_stack(reader.stack_totals())
