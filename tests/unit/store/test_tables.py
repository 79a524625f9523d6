"""What records become in the tables of a run file, and that a batch is written whole or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from support.synthetic import MAIN, MAIN_TID, RUN_ID, STARTED_NS, main_process, recording, run_started
from support.training_stacks import CONV, LOSS, describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database, tables
from profd.daemon.store import writer as writer_module
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    EventHappened,
    Identity,
    OutputWritten,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    Record,
    RecordingTaken,
    RunEnded,
)
from profd.daemon.store.writer import RunWriter

CHILD = Identity(4300, 1100)


def sampled(at_ns: int = STARTED_NS, identity: Identity = MAIN) -> RecordingTaken:
    return recording(identity, at_ns, [(MAIN_TID, "MainThread", True, [(CONV, 400), (LOSS, 600)])])


def write(path: Path, *records: Record) -> RunReader:
    """Write these records and return the finished run."""
    writer = RunWriter(path, run_started(), describe)
    assert all(writer.put(record) for record in records)
    writer.close()
    assert writer.failure is None
    return RunReader(path)


def test_a_run_of_nothing_is_complete(path: Path) -> None:
    with write(path, RunEnded(STARTED_NS + 5, "stopped")) as reader:
        assert (reader.info.id, reader.info.state, reader.info.why_ended) == (RUN_ID, "ended", "stopped")
        assert reader.info.end_ns == STARTED_NS + 5
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_frames_and_stacks_are_written_once(path: Path) -> None:
    with write(path, main_process(), sampled(), sampled(STARTED_NS + SECOND_NS)) as reader:
        assert {reader.frames_of(interval.stack)[-1].function for interval in reader.intervals()} == {
            CONV[-1].function,
            LOSS[-1].function,
        }
        assert len(reader.frames) == len({*CONV, *LOSS})
        assert len(list(reader.intervals())) == 4
        assert [row.samples for row in reader.recordings()] == [100, 100]


def test_a_process_known_better_is_one_process_and_one_that_has_its_pid_later_another(path: Path) -> None:
    better = ProcessSeen(MAIN, None, ("python", "other.py"), "launcher", 2, 1, "3.12", STARTED_NS + 9)
    later = ProcessSeen(Identity(MAIN.pid, MAIN.start_ticks + 500), None, (), "helper", None, None, None, STARTED_NS)
    with write(path, main_process(), better, ProcessEnded(MAIN, STARTED_NS + 10, None, 9), later) as reader:
        row, other = reader.processes.values()
        assert (row.command, row.role, row.rank, row.ordinal) == (("python", "other.py"), "launcher", 2, 1)
        assert (row.seen_ns, row.ended_ns) == (STARTED_NS, STARTED_NS + 10)
        assert (row.exit_code, row.exit_signal) == (None, 9)
        assert (other.pid, other.role, other.ended_ns) == (MAIN.pid, "helper", None)


def test_children_lie_below_their_parents(path: Path) -> None:
    child = ProcessSeen(CHILD, MAIN, (), "helper", None, None, None, STARTED_NS)
    with write(path, main_process(), child) as reader:
        ids = {row.pid: row.id for row in reader.processes.values()}
        assert {row.pid: row.parent for row in reader.processes.values()} == {MAIN.pid: None, CHILD.pid: ids[MAIN.pid]}


def test_records_of_a_process_that_was_never_told_are_kept(path: Path) -> None:
    points = PointsTaken(STARTED_NS, (Point("cpu_cores", 0.5, CHILD),))
    with write(path, points, sampled(), main_process(), ProcessEnded(Identity(1, 1), 5)) as reader:
        assert {row.pid: row.role for row in reader.processes.values()} == {CHILD.pid: "helper", MAIN.pid: "main"}
        assert len(list(reader.intervals())) == 2
        assert [point.value for series in reader.series for point in reader.points(series)] == [0.5]


def test_an_interval_keeps_its_samples_and_its_length_and_twice_it_is_one(path: Path) -> None:
    with write(path, main_process(), sampled(), sampled()) as reader:
        assert [(row.duration_ns, row.samples) for row in reader.intervals()] == [
            (4 * SECOND_NS // 10, 40), (6 * SECOND_NS // 10, 60)
        ]  # fmt: skip


def test_values_that_are_no_numbers_are_left_out(path: Path) -> None:
    points = (Point("cpu_cores", float("nan"), MAIN), Point("rss_bytes", 7.0, MAIN))
    with write(path, main_process(), PointsTaken(STARTED_NS, points)) as reader:
        assert [point.value for series in reader.series for point in reader.points(series)] == [7.0]


def test_the_length_of_a_live_run_never_shrinks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BATCH_LENGTH", 1)
    later, earlier = (EventHappened(STARTED_NS + at * SECOND_NS, "note", "") for at in (9, 2))
    with write(path, later, earlier) as reader:
        assert reader.info.end_ns == STARTED_NS + 9 * SECOND_NS


def test_the_oldest_output_goes_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "OUTPUT_LIMIT_BYTES", 10)
    written = [OutputWritten(STARTED_NS + at, data) for at, data in enumerate([b"aaaa", b"bbbb", b"cccc", b"d"])]
    with write(path, *written) as reader:
        assert [row.data for row in reader.output()] == [b"bbbb", b"cccc", b"d"]
    with write(path.with_name("large.profd"), OutputWritten(STARTED_NS, b"x" * 11)) as reader:
        assert reader.output() == []


FAR = EventHappened(1 << 63, "note", "far")


def test_a_batch_is_written_whole_or_not_at_all(path: Path) -> None:
    written = tables.Tables(database.create(path), describe)
    written.begin(run_started())
    written.commit([main_process()])
    with pytest.raises(OverflowError):
        written.commit([sampled(), FAR])
    written.close()
    with RunReader(path) as reader:
        assert len(reader.processes) == 1
        assert (list(reader.intervals()), reader.recordings()) == ([], [])


def test_a_batch_that_failed_can_be_written_again_as_if_it_had_not(tmp_path: Path) -> None:
    assert rows_of_a_run(tmp_path / "failed.profd", fails=True) == rows_of_a_run(tmp_path / "run.profd", fails=False)


def rows_of_a_run(path: Path, *, fails: bool) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a run of minutes whose batches all fail at first, or do not."""
    written = tables.Tables(database.create(path), describe)
    written.begin(run_started())
    for number in range(12):
        at_ns = STARTED_NS + number * 17 * SECOND_NS
        batch: list[Record] = [main_process(), sampled(at_ns), PointsTaken(at_ns, (Point("cpu_cores", number, MAIN),))]
        if fails:
            with pytest.raises(OverflowError):
                written.commit([*batch, OutputWritten(at_ns, b"x"), FAR])
        written.commit(batch)
    written.finish()
    written.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
