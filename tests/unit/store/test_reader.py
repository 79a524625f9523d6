"""Reading run files, finished ones and those that grow while they are read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import (
    MAIN,
    MAIN_TID,
    PIN_TID,
    STARTED_NS,
    LiveRun,
    live_run,
    write_records,
    write_run,
)
from support.training_stacks import STEP

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.entities import Entities, has_ended
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    Frame,
    Interval,
    Point,
    PointsTaken,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.store.rows import StackRow
from profd.daemon.timerange import EVER, TimeRange

SECONDS = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    with RunReader(
        write_run(tmp_path_factory.mktemp("run") / "run.profd", seconds=SECONDS, exit_signal=9)
    ) as reader:
        yield reader


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRun]:
    with live_run(tmp_path / "live.profd", seconds=1, workers=0) as run:
        yield run


def novel(number: int, at_ns: int) -> RecordingTaken:
    """Return a recording whose stack no one has seen before."""
    stack = (Frame("<module>", "novel.py", 1), Frame(f"novel_{number}", "novel.py", number))
    timeline = ThreadTimeline(MAIN_TID, "MainThread", True, (Interval(at_ns, SECOND_NS, 0, 100),))
    return RecordingTaken(
        MAIN, at_ns, at_ns + SECOND_NS, 100, 100, 0, 0, 0, 0, (stack,), (timeline,)
    )


def thread_of(reader: RunReader, os_tid: int) -> int:
    return next(thread.id for thread in reader.threads.values() if thread.os_tid == os_tid)


def test_intervals_are_in_order_of_time_and_those_of_the_threads_asked_for(
    finished: RunReader,
) -> None:
    everything = list(finished.intervals())
    assert [i.start_ns for i in everything] == sorted(i.start_ns for i in everything)
    middle_ns = STARTED_NS + 2 * SECOND_NS
    parts = [
        *finished.intervals(TimeRange(to_ns=middle_ns)),
        *finished.intervals(TimeRange(middle_ns)),
    ]
    assert parts == everything
    assert list(finished.intervals(TimeRange(middle_ns, middle_ns))) == []
    pin = thread_of(finished, PIN_TID)
    assert {interval.thread for interval in finished.intervals(threads=[pin])} == {pin}
    assert list(finished.intervals(threads=[])) == []
    assert len(list(finished.intervals(threads=list(finished.threads)))) == len(
        list(finished.intervals())
    )


def test_what_was_recorded_is_that_of_the_recordings_and_their_intervals(
    finished: RunReader,
) -> None:
    middle_ns = STARTED_NS + 2 * SECOND_NS
    ends = TimeRange(to_ns=middle_ns), TimeRange(middle_ns), TimeRange(middle_ns, middle_ns)
    for time in (EVER, *ends):
        recordings, recorded = finished.recordings(time), finished.recorded(time)
        assert recorded.samples == sum(row.samples for row in recordings)
        assert recorded.torn == sum(row.torn for row in recordings)
    assert 0 < finished.recorded(TimeRange(to_ns=middle_ns)).samples < finished.recorded().samples
    added: dict[tuple[int, int], tuple[int, int]] = {}
    for interval in finished.intervals(TimeRange(STARTED_NS, STARTED_NS + SECOND_NS)):
        samples, time_ns = added.get((interval.thread, interval.stack), (0, 0))
        added[interval.thread, interval.stack] = (
            samples + interval.samples,
            time_ns + interval.duration_ns,
        )
    totals = finished.stack_totals(TimeRange(STARTED_NS, STARTED_NS + SECOND_NS))
    assert {(row.thread, row.stack): (row.samples, row.duration_ns) for row in totals} == added
    main = thread_of(finished, MAIN_TID)
    assert finished.stack_totals(threads=[main]) == [
        row for row in finished.stack_totals() if row.thread == main
    ]


def test_frames_of_a_stack_go_from_the_root_to_the_leaf_and_are_shared(finished: RunReader) -> None:
    found = {
        tuple((f.function, f.file, f.line) for f in finished.frames_of(row.stack))
        for row in finished.stack_totals(threads=[thread_of(finished, MAIN_TID)])
    }
    assert found == {tuple(map(tuple, stack)) for stack, _ in STEP}
    assert finished.frames_of(0) == ()
    assert len(finished.stacks) < sum(len(stack) for stack, _ in STEP)
    labels = {frame.label for frame in finished.frames.values()}  # as flame graph tools have them
    assert labels >= {"train_epoch (train.py:63)", "Conv2d.forward (torch/nn/modules/conv.py:548)"}


def test_main_threads_are_those_of_main_processes_that_are_there(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "run.profd", seconds=1)) as reader:
        assert [(thread.os_tid, thread.name) for thread in reader.main_threads()] == [
            (MAIN_TID, "MainThread")
        ]
        reader.processes.clear()
        assert reader.main_threads() == []


def test_series_are_found_by_what_they_are_of(finished: RunReader) -> None:
    rows = [row for row in finished.list_series() if row.os_tid is None]
    assert [finished.find_series(row.name, row.process, row.device) for row in rows] == rows
    assert finished.find_series("cpu_cores") is None


def test_threads_are_those_that_were_sampled_in_a_range(finished: RunReader) -> None:
    every = list(finished.intervals())
    middle_ns = every[len(every) // 2].start_ns
    assert finished.sampled_threads(EVER) == {row.thread for row in every}
    assert finished.sampled_threads(TimeRange(middle_ns)) == {
        row.thread for row in every if row.start_ns >= middle_ns
    }
    assert finished.sampled_threads(TimeRange(middle_ns, middle_ns + 1)) == {
        row.thread for row in every if row.start_ns == middle_ns
    }
    assert finished.sampled_threads(TimeRange(to_ns=every[0].start_ns)) == set()


def test_series_are_listed_by_name_and_process_and_those_that_are_new(finished: RunReader) -> None:
    every = finished.list_series()
    assert len({row.process for row in every}) > 2
    some = finished.list_series("rss_bytes", "host_cpu_share")
    assert some == [row for row in every if row.name in {"rss_bytes", "host_cpu_share"}]
    assert {row.name for row in some} == {"rss_bytes", "host_cpu_share"}
    assert finished.list_series("rss_bytes", processes={1}) == [
        row for row in some if row.process == 1
    ]
    assert finished.list_series(processes={None, 2}) == [
        row for row in every if row.process in {None, 2}
    ]
    assert finished.list_series(processes=()) == []
    assert finished.list_series(after_id=every[3].id) == every[4:]
    with RunReader(finished.path, Entities(has_ended)) as living:
        living.refresh()
        living.processes.pop(1)
        assert living.list_series("rss_bytes") == [
            row for row in some if row.process in living.processes
        ]


def test_recordings_events_and_output_after_one(finished: RunReader) -> None:
    everything = finished.recordings_after(0, 1000)
    assert [row.id for row in everything] == sorted(row.id for row in everything)
    assert finished.recordings_after(everything[1].id, 2) == everything[2:4]
    assert finished.recordings_after(everything[-1].id, 2) == []
    first, *rest = finished.events()
    assert finished.events(after_id=first.id) == rest
    kinds = {event.kind for event in (first, *rest)}
    assert len(kinds) > 1
    for kind in kinds:
        assert finished.events(kind) == [event for event in (first, *rest) if event.kind == kind]
    assert finished.events(*kinds, after_id=first.id) == rest
    assert finished.output(finished.output()[-2].id) == finished.output()[-1:]


def test_a_live_run_is_live_and_grows_and_has_another_version_after_a_change(live: LiveRun) -> None:
    with RunReader(live.path) as reader:
        assert reader.info.state == "live"
        before, version = len(list(reader.intervals())), reader.version()
        assert reader.version() == version
        live.advance(2)
        assert version != reader.version() == reader.version()
        reader.refresh()
        assert len(list(reader.intervals())) == 3 * before
        live.end(exit_code=3)
        reader.refresh()
        assert (reader.info.state, reader.info.exit_code) == ("ended", 3)


def test_what_is_written_between_queries_of_a_refresh_is_whole(
    live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stack, its frame, its thread and its process are never known by halves."""
    with RunReader(live.path) as reader:
        known, real = len(reader.stacks), reader._query

        def query(sql: str, *values: int | str) -> list[tuple[Any, ...]]:
            if " FROM " in sql and "meta" not in sql:
                live.writer.put(novel(live.seconds, live.started_ns + live.seconds * SECOND_NS))
                live.advance()
            return real(sql, *values)

        monkeypatch.setattr(reader, "_query", query)
        reader.refresh()
        monkeypatch.undo()
        assert len(reader.stacks) > known
        for row in reader.stacks.values():
            assert row.frame in reader.frames
            assert row.parent == 0 or row.parent in reader.stacks
        assert {thread.process for thread in reader.threads.values()} <= reader.processes.keys()


def test_one_moment_is_blind_to_what_comes_later_and_then_new_stacks_are_looked_up(
    live: LiveRun,
) -> None:
    with RunReader(live.path) as reader:
        with reader.one_moment():
            before = len(list(reader.intervals()))
            live.writer.put(novel(77, live.started_ns + 50 * SECOND_NS))
            live.advance()
            reader.refresh()
            assert len(list(reader.intervals())) == before
        assert len(list(reader.intervals())) > before
        assert "novel_77" in {
            reader.frames_of(interval.stack)[-1].function for interval in reader.intervals()
        }


@pytest.mark.parametrize("row", [StackRow(1, 1, 1), StackRow(1, 2, 1), StackRow(1, 0, 10**6)])
def test_a_damaged_stack_is_an_error_of_the_file(tmp_path: Path, row: StackRow) -> None:
    with RunReader(write_run(tmp_path / "run.profd", seconds=1)) as reader:
        reader.stacks[1] = row
        with pytest.raises(RunUnreadable, match="damaged"):
            reader.frames_of(1)
        with pytest.raises(RunUnreadable, match="damaged"):
            reader.frames_of(10**6)


FIRST_S, LAST_S = 100, 700


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    """Give a run with one series, whose readings are 1 to 40 seconds apart."""
    path = tmp_path_factory.mktemp("points") / "run.profd"
    found, chance, at_s = list[Record](), random.Random(5), FIRST_S
    while at_s < LAST_S:
        found.append(
            PointsTaken(STARTED_NS + at_s * SECOND_NS, (Point("host_cpu_share", chance.random()),))
        )
        at_s += chance.choice((1, 1, 1, 2, 5, 40))
    with RunReader(write_records(path, found)) as reader:
        yield reader


@pytest.mark.parametrize(
    ("from_s", "to_s"),
    [
        (0, FIRST_S - 1),
        (0, FIRST_S),
        (FIRST_S - 1, 800),
        *((at, at + 7) for at in range(90, 720, 9)),
    ],
)
def test_a_range_says_of_its_time_what_all_of_the_run_says(
    readings: RunReader, from_s: int, to_s: int
) -> None:
    series = readings.list_series()[0].id
    time = TimeRange(from_s * SECOND_NS, to_s * SECOND_NS).moved(STARTED_NS)
    assert readings.steps(series, time).over(time) == readings.steps(series).over(time)


@pytest.mark.parametrize("part_ns", [1, SECOND_NS // 3, SECOND_NS, 300 * SECOND_NS])
def test_intervals_are_the_same_however_many_are_read_at_a_time(
    finished: RunReader, monkeypatch: pytest.MonkeyPatch, part_ns: int
) -> None:
    whole = list(finished.intervals())
    monkeypatch.setattr("profd.daemon.store.reader._PART_NS", part_ns)
    assert list(finished.intervals()) == whole
    (first,) = finished.select(tuple[int], "SELECT min(start_ns) FROM interval")
    from_ns, to_ns = first[0] + SECOND_NS // 2, first[0] + 3 * SECOND_NS
    some = [row for row in whole if from_ns <= row.start_ns < to_ns]
    assert 0 < len(some) < len(whole)
    assert list(finished.intervals(TimeRange(from_ns, to_ns))) == some
    assert (
        list(finished.intervals(TimeRange(to_ns=to_ns)))
        + list(finished.intervals(TimeRange(to_ns)))
        == whole
    )
    assert (
        list(finished.intervals(TimeRange(to_ns, from_ns)))
        == list(finished.intervals(TimeRange(to_ns=0)))
        == []
    )
