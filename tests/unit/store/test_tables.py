"""What records become in the tables of a run file, and that a batch is written whole or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import (
    MAIN,
    MAIN_TID,
    RUN_ID,
    STARTED_NS,
    main_process,
    recording,
    run_started,
    write_records,
)
from support.training_stacks import CONV, LOSS, describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store import database, interning
from profd.daemon.store import writer as writer_module
from profd.daemon.store.interning import Interning
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    Identity,
    Interval,
    OutputWritten,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    Record,
    RecordingTaken,
    RunEnded,
    ThreadTimeline,
)
from profd.daemon.store.tables import Tables

CHILD = Identity(4300, 1100)


def sampled(at_ns: int = STARTED_NS, identity: Identity = MAIN) -> RecordingTaken:
    return recording(identity, at_ns, [(MAIN_TID, "MainThread", True, [(CONV, 400), (LOSS, 600)])])


def write(path: Path, *records: Record) -> RunReader:
    return RunReader(write_records(path, records))


def test_a_run_of_nothing_is_complete(path: Path) -> None:
    with write(path, RunEnded(STARTED_NS + 5, "stopped")) as reader:
        assert (reader.info.id, reader.info.state, reader.info.why_ended) == (
            RUN_ID,
            "ended",
            "stopped",
        )
        assert reader.info.end_ns == STARTED_NS + 5
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_frames_and_stacks_are_written_once(path: Path) -> None:
    with write(path, main_process(), sampled(), sampled(STARTED_NS + SECOND_NS)) as reader:
        assert {
            reader.frames_of(interval.stack)[-1].function for interval in reader.intervals()
        } == {
            CONV[-1].function,
            LOSS[-1].function,
        }
        assert len(reader.frames) == len({*CONV, *LOSS})
        assert len(list(reader.intervals())) == 4
        assert [row.samples for row in reader.recordings()] == [100, 100]


def test_a_process_known_better_is_one_process_and_one_that_has_its_pid_later_another(
    path: Path,
) -> None:
    better = ProcessSeen(
        MAIN, None, ("python", "other.py"), "launcher", 2, 1, "3.12", STARTED_NS + 9
    )
    later = ProcessSeen(
        Identity(MAIN.pid, MAIN.start_ticks + 500), None, (), "helper", None, None, None, STARTED_NS
    )
    with write(
        path, main_process(), better, ProcessEnded(MAIN, STARTED_NS + 10, None, 9), later
    ) as reader:
        row, other = reader.processes.values()
        assert (row.command, row.role, row.rank, row.ordinal) == (
            ("python", "other.py"),
            "launcher",
            2,
            1,
        )
        assert (row.seen_ns, row.ended_ns) == (STARTED_NS, STARTED_NS + 10)
        assert (row.exit_code, row.exit_signal) == (None, 9)
        assert (other.pid, other.role, other.ended_ns) == (MAIN.pid, "helper", None)


def test_records_of_a_process_without_a_record_of_its_own_are_kept(path: Path) -> None:
    points = PointsTaken(STARTED_NS, (Point("cpu_cores", 0.5, CHILD),))
    with write(path, points, sampled(), main_process(), ProcessEnded(Identity(1, 1), 5)) as reader:
        assert {row.pid: row.role for row in reader.processes.values()} == {
            CHILD.pid: "helper",
            MAIN.pid: "main",
        }
        assert len(list(reader.intervals())) == 2
        assert [
            point.value for series in reader.list_series() for point in reader.points(series.id)
        ] == [0.5]


def test_an_interval_keeps_its_samples_and_its_length_and_twice_it_is_one(path: Path) -> None:
    with write(path, main_process(), sampled(), sampled()) as reader:
        assert [(row.duration_ns, row.samples) for row in reader.intervals()] == [
            (4 * SECOND_NS // 10, 40), (6 * SECOND_NS // 10, 60)
        ]  # fmt: skip


def test_values_that_are_no_numbers_are_left_out(path: Path) -> None:
    points = (Point("cpu_cores", float("nan"), MAIN), Point("rss_bytes", 7.0, MAIN))
    with write(path, main_process(), PointsTaken(STARTED_NS, points)) as reader:
        assert [
            point.value for series in reader.list_series() for point in reader.points(series.id)
        ] == [7.0]


def test_the_length_of_a_live_run_never_shrinks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "BATCH_LENGTH", 1)
    later, earlier = (
        EventHappened(STARTED_NS + at * SECOND_NS, EventKind.NOTE, "") for at in (9, 2)
    )
    with write(path, later, earlier) as reader:
        assert reader.info.end_ns == STARTED_NS + 9 * SECOND_NS


def test_the_oldest_output_goes_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.store.tables.OUTPUT_LIMIT_BYTES", 10)
    written = [
        OutputWritten(STARTED_NS + at, data)
        for at, data in enumerate([b"aaaa", b"bbbb", b"cccc", b"d"])
    ]
    with write(path, *written) as reader:
        assert [row.data for row in reader.output()] == [b"bbbb", b"cccc", b"d"]
    with write(path.with_name("large.profd"), OutputWritten(STARTED_NS, b"x" * 11)) as reader:
        assert reader.output() == []


FAR = EventHappened(1 << 63, EventKind.NOTE, "far")


def test_a_batch_is_written_whole_or_not_at_all(path: Path) -> None:
    written = Tables(database.create(path), describe)
    written.begin(run_started())
    written.commit([main_process()])
    with pytest.raises(OverflowError):
        written.commit([sampled(), FAR])
    written.close()
    with RunReader(path) as reader:
        assert len(reader.processes) == 1
        assert (list(reader.intervals()), reader.recordings()) == ([], [])


@pytest.mark.parametrize("fails", ["at a record", "at its end"])
def test_a_batch_that_failed_can_be_written_again_as_if_it_had_not(
    tmp_path: Path, fails: str
) -> None:
    assert rows_of_a_run(tmp_path / "failed.profd", fails) == rows_of_a_run(
        tmp_path / "run.profd", ""
    )


def rows_of_a_run(path: Path, fails: str) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a run of minutes of whose batches all fail at first, or every second one
    at its end.
    """
    written = Tables(database.create(path), describe)
    written.begin(run_started())
    for number in range(12):
        at_ns = STARTED_NS + number * 17 * SECOND_NS
        batch: list[Record] = [
            main_process(),
            sampled(at_ns),
            PointsTaken(at_ns, (Point("cpu_cores", number, MAIN),)),
        ]
        if fails == "at a record":
            with pytest.raises(OverflowError):
                written.commit([*batch, OutputWritten(at_ns, b"x"), FAR])
        elif (
            fails and number % 2
        ):  # the sums of a minute that the batch before has completed were written by then
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(written._stack_sums, "settle", raise_memory_error)
                with pytest.raises(MemoryError):
                    written.commit(batch)
        written.commit(batch)
    written.finish()
    written.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def raise_memory_error(now_ns: int) -> None:
    raise MemoryError(now_ns)


STACK = (Frame("<module>", "/srv/train.py", 3), Frame("train", "/srv/train.py", 9))
LATER_NS = STARTED_NS + 300 * SECOND_NS
HELD = (
    "PROCESSES_HELD",
    "THREADS_HELD",
    "SERIES_HELD",
    "FRAMES_HELD",
    "STACKS_HELD",
    "WHOLE_HELD",
)


@pytest.fixture
def tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    for name in HELD:
        monkeypatch.setattr(interning, name, getattr(interning, name) >> 5)
    made = Tables(database.create(path), describe)
    made.begin(run_started())
    yield made
    made.close()


def life(number: int, at_ns: int) -> list[Record]:
    """Return what is written of a worker that lived for ten seconds."""
    worker = Identity(1000 + number, 7)
    thread = ThreadTimeline(
        worker.pid, "MainThread", is_main=True, intervals=(Interval(at_ns, SECOND_NS, 0, 5),)
    )
    points = tuple(Point(name, 1.0, worker) for name in ("cpu_cores", "rss_bytes", "threads"))
    return [
        ProcessSeen(worker, None, (), "worker", None, number, "3.11", at_ns),
        PointsTaken(at_ns, points),
        RecordingTaken(worker, at_ns, at_ns + SECOND_NS, 20, 5, 0, 0, 0, 0, (STACK,), (thread,)),
        ProcessEnded(worker, at_ns + 10 * SECOND_NS, 0),
    ]


def test_workers_that_came_and_went_are_not_held(tables: Tables) -> None:
    for number in range(400):
        tables.commit(life(number, STARTED_NS + number * 10 * SECOND_NS))
    of_workers = interning.PROCESSES_HELD + interning.THREADS_HELD + interning.SERIES_HELD
    assert len(tables._ids) <= of_workers + 10


@pytest.mark.parametrize(
    ("given", "names"),
    [
        *((["", "feeder", ""], ["feeder"]), (["feeder", "", "feeder"], ["feeder"])),
        *((["", "", "autograd"], ["autograd"]), (["feeder", "reader", ""], ["feeder", "reader"])),
    ],
)
def test_a_thread_without_a_name_is_the_one_that_has_it(
    tables: Tables, path: Path, given: list[str], names: list[str]
) -> None:
    for place, name in enumerate(given):
        at_ns = STARTED_NS + place * SECOND_NS
        timeline = ThreadTimeline(
            5000, name, is_main=False, intervals=(Interval(at_ns, SECOND_NS, 0, 5),)
        )
        tables.commit(
            [
                RecordingTaken(
                    MAIN, at_ns, at_ns + SECOND_NS, 20, 5, 0, 0, 0, 0, (STACK,), (timeline,)
                )
            ]
        )
    tables.finish()
    with RunReader(path) as reader:
        assert [row.name for row in reader.threads.values()] == names
        assert len(list(reader.intervals())) == len(given)


def test_a_thread_leads_from_when_it_is_said_to(tables: Tables, path: Path) -> None:
    for place, leads in enumerate((False, True, True, False)):
        at_ns = STARTED_NS + place * SECOND_NS
        timeline = ThreadTimeline(
            5000, "trainer", is_main=leads, intervals=(Interval(at_ns, SECOND_NS, 0, 5),)
        )
        tables.commit(
            [
                RecordingTaken(
                    MAIN, at_ns, at_ns + SECOND_NS, 20, 5, 0, 0, 0, 0, (STACK,), (timeline,)
                )
            ]
        )
    tables.finish()
    with RunReader(path) as reader:
        assert [reader.threads[one.thread].is_main for one in reader.intervals()] == [
            False,
            True,
            True,
            False,
        ]
        assert [(row.os_tid, row.name) for row in reader.threads.values()] == [
            (5000, "trainer")
        ] * 2


def test_a_process_that_makes_threads_for_ever_holds_few(tables: Tables) -> None:
    points = tuple(Point("cpu_cores", 0.0, MAIN, 5000 + number) for number in range(400))
    threads = tuple(
        ThreadTimeline(5000 + number, "feeder", is_main=False, intervals=())
        for number in range(400)
    )
    recording = RecordingTaken(MAIN, STARTED_NS, STARTED_NS, 20, 0, 0, 0, 0, 0, (), threads)
    tables.commit([PointsTaken(STARTED_NS, points), recording])
    assert len(tables._ids) <= interning.THREADS_HELD + interning.SERIES_HELD + 2


def test_functions_that_are_made_up_for_ever_are_not_all_held_and_keep_their_ids(
    tables: Tables,
) -> None:
    before = tables._ids.stacks([STACK])
    stacks = tuple(
        (Frame("made_up", f"<code {number}>", 1),) for number in range(3 * interning.STACKS_HELD)
    )
    tables.commit(
        [RecordingTaken(Identity(1, 1), STARTED_NS, STARTED_NS, 20, 0, 0, 0, 0, 0, stacks, ())]
    )
    held = interning.STACKS_HELD + interning.FRAMES_HELD + interning.WHOLE_HELD
    assert len(tables._ids) <= held + 2
    assert tables._ids.stacks([STACK]) == before


def test_late_records_of_a_forgotten_process_belong_to_the_same_process(
    tables: Tables, path: Path
) -> None:
    others = range(2, 2 + interning.SERIES_HELD)
    tables.commit(life(1, STARTED_NS))
    tables.commit([record for number in others for record in life(number, STARTED_NS)])
    tables.commit(life(1, LATER_NS)[1:3])
    tables.finish()
    with RunReader(path) as reader:
        (first,) = (row.id for row in reader.processes.values() if row.pid == 1001)
        (thread,) = (row.id for row in reader.threads.values() if row.process == first)
        assert len(reader.processes) == 1 + len(others)
        assert len(reader.list_series(processes=[first])) == 3
        assert len(list(reader.intervals(threads=[thread]))) == 2


def test_a_child_keeps_its_parent_when_that_was_forgotten(tables: Tables, path: Path) -> None:
    parent, child = Identity(1001, 7), Identity(3000, 7)
    tables.commit(life(1, STARTED_NS))
    tables.commit([ProcessSeen(child, parent, (), "helper", None, None, "3.11", LATER_NS)])
    tables.commit([ProcessSeen(child, parent, (), "worker", None, 1, "3.11", LATER_NS + 1)])
    tables.finish()
    with RunReader(path) as reader:
        ids = {row.pid: row.id for row in reader.processes.values()}
        assert [(row.pid, row.parent, row.role) for row in reader.processes.values()] == [
            (parent.pid, None, "worker"),
            (child.pid, ids[parent.pid], "worker"),
        ]


def test_the_machine_has_series_of_its_own(tables: Tables) -> None:
    shared = Point("host_cpu_share", 0.5)
    assert tables._ids.series(shared) == tables._ids.series(Point("host_cpu_share", 0.7))
    assert tables._ids.series(shared) != tables._ids.series(
        Point("host_cpu_share", 0.5, device="cpu0")
    )


def test_nothing_is_written_of_a_process_that_the_file_does_not_know(path: Path) -> None:
    with pytest.raises(LookupError):
        Interning(database.create(path), describe).thread(
            Identity(1, 1), 1, "MainThread", is_main=True
        )
