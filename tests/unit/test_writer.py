"""The writer of run files: what it drops, what it survives, and what a killed one leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from synthetic import MAIN, MAIN_TID, RUN_ID, STARTED_NS, main_process, recording, run_started
from training_stacks import CONV, LOSS, describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable
from profd.daemon.store import tables
from profd.daemon.store import writer as writer_module
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    FrameDescription,
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
from profd.daemon.store.writer import QUEUE_LENGTH, RunWriter

CHILD = Identity(4300, 1100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.profd"


class Gate:
    """Describes frames once it is opened; ``reached`` says that the writer stands before it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def describe(self, frame: Frame) -> FrameDescription:
        self.reached.set()
        assert self._open.wait(60)
        return describe(frame)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


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


def test_a_process_known_better_is_one_process(path: Path) -> None:
    better = ProcessSeen(MAIN, None, ("python", "other.py"), "launcher", 2, 1, "3.12", STARTED_NS + 9)
    with write(path, main_process(), better, ProcessEnded(MAIN, STARTED_NS + 10, 3)) as reader:
        (row,) = reader.processes.values()
        assert (row.command, row.role, row.rank, row.ordinal) == (("python", "other.py"), "launcher", 2, 1)
        assert (row.seen_ns, row.ended_ns, row.exit_code) == (STARTED_NS, STARTED_NS + 10, 3)


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


def test_the_same_interval_twice_is_one(path: Path) -> None:
    with write(path, main_process(), sampled(), sampled()) as reader:
        assert len(list(reader.intervals())) == 2


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


def test_a_full_queue_drops_and_counts(path: Path, gate: Gate) -> None:
    writer = RunWriter(path, run_started(), gate.describe)
    writer.put(main_process())
    writer.put(sampled())
    assert gate.reached.wait(60)
    notes = [writer.put(EventHappened(STARTED_NS, "note", str(number))) for number in range(QUEUE_LENGTH + 3)]
    assert notes.count(False) == writer.dropped == 3
    gate.open()
    writer.close()
    assert writer.failure is None
    with RunReader(path) as reader:
        assert [event.text for event in reader.events()] == [str(number) for number in range(QUEUE_LENGTH)]


def broken(error: Exception) -> Callable[[Frame], FrameDescription]:
    def describe(frame: Frame) -> FrameDescription:
        raise error

    return describe


@pytest.mark.parametrize("error", [RuntimeError("no source"), OSError(5, "Input/output error"), KeyError()])
def test_a_frame_that_cannot_be_described_ends_the_writer_and_says_why(path: Path, error: Exception) -> None:
    writer = RunWriter(path, run_started(), broken(error))
    writer.put(main_process())
    writer.put(EventHappened(STARTED_NS, "note", "kept or not"))
    writer.put(sampled())
    writer.close(timeout_s=60)
    assert writer.failure
    assert not writer.put(sampled())
    with RunReader(path) as reader:
        assert list(reader.intervals()) == []
        assert reader.info.state == "interrupted"


def test_numbers_that_no_file_takes_end_the_writer_and_say_why(path: Path) -> None:
    writer = RunWriter(path, run_started(), describe)
    writer.put(EventHappened(1 << 80, "note", "far"))
    writer.close()
    assert writer.failure is not None
    assert "too large" in writer.failure


def test_a_disk_that_is_full_ends_the_writer_and_says_why(path: Path) -> None:
    writer = RunWriter(path, run_started(), describe)
    writer.put(main_process())
    writer._tables._connection.execute("PRAGMA max_page_count = 1")
    for second in range(200):
        writer.put(sampled(STARTED_NS + second * SECOND_NS))
    writer.put(OutputWritten(STARTED_NS, b"x" * 100_000))
    writer.close()
    assert writer.failure == "database or disk is full"
    with RunReader(path) as reader:
        assert reader.info.id == RUN_ID


def test_closing_a_writer_that_failed_with_a_full_queue_waits_for_nothing(path: Path, gate: Gate) -> None:
    def fail(frame: Frame) -> FrameDescription:
        gate.describe(frame)
        raise RuntimeError("no source")

    writer = RunWriter(path, run_started(), fail)
    writer.put(main_process())
    writer.put(sampled())
    assert gate.reached.wait(60)
    for _ in range(QUEUE_LENGTH):
        writer.put(sampled())
    closing = threading.Thread(target=writer.close, args=(3600.0,))
    closing.start()
    gate.open()
    closing.join(60)
    assert not closing.is_alive()
    assert writer.failure == "no source"


def test_a_disk_that_is_too_slow_is_given_up_and_said(path: Path, gate: Gate) -> None:
    writer = RunWriter(path, run_started(), gate.describe)
    writer.put(main_process())
    writer.put(sampled())
    assert gate.reached.wait(60)
    writer.close(timeout_s=0.01)
    assert writer.failure is not None
    assert "too slow" in writer.failure


def test_a_reader_that_looks_at_the_end_loses_nothing(path: Path) -> None:
    writer = RunWriter(path, run_started(), describe)
    writer._tables._connection.execute("PRAGMA busy_timeout = 0")
    writer.put(main_process())
    with RunReader(path) as early, early.one_moment():
        writer.put(sampled())
        writer.put(RunEnded(STARTED_NS + SECOND_NS, "stopped"))
        writer.close()
        assert writer.failure is None
    with RunReader(path) as reader:
        assert reader.info.state == "ended"
        assert len(list(reader.intervals())) == 2


def test_where_no_file_can_be_made_there_is_no_thread(tmp_path: Path) -> None:
    before = threading.enumerate()
    with pytest.raises(OutputUnwritable):
        RunWriter(tmp_path / "none" / "run.profd", run_started(), describe)
    assert set(threading.enumerate()) <= set(before)


KILLED = """
import itertools, sys
from pathlib import Path
from synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, run_started
from training_stacks import CONV, LOSS, describe
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.writer import RunWriter

writer = RunWriter(Path(sys.argv[1]), run_started(live=True), describe)
writer.put(main_process())
for second in itertools.count():
    spans = [(CONV, 400), (LOSS, 600)] * 50
    taken = recording(MAIN, STARTED_NS + second * 50 * SECOND_NS, [(MAIN_TID, "MainThread", True, spans)])
    while not writer.put(taken):
        pass
    if second == 100:
        print("writing", flush=True)
"""


def test_a_killed_writer_leaves_a_readable_file(path: Path) -> None:
    folder = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(folder)}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        with RunReader(path) as before:
            assert before.info.state == "live"
            while not (seen := len(before.recordings())):
                assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    with RunReader(path) as reader:
        assert reader.info.state == "interrupted"
        assert len(reader.recordings()) >= seen
        assert len(list(reader.intervals())) == 100 * len(reader.recordings())
        assert reader._query("PRAGMA integrity_check") == [("ok",)]
