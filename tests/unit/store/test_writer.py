"""The writer of run files: what it drops, what it survives, and what a killed one leaves behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.folders import TESTS
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
from support.waiting import until

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable
from profd.daemon.events import EventKind
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.writer import LEFT_FREE_BYTES, QUEUE_LENGTH, Losses, Room, RunWriter


class Gate:
    """Describes frames once it is opened; ``reached`` says that the writer stands before it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def describe(self, frame: records.Frame) -> records.FrameDescription:
        self.reached.set()
        assert self._open.wait(60)
        return describe(frame)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


def sampled(at_ns: int = STARTED_NS, identity: records.Identity = MAIN) -> records.RecordingTaken:
    return recording(identity, at_ns, [(MAIN_TID, "MainThread", True, [(CONV, 400), (LOSS, 600)])])


def begun(path: Path, *, is_written: bool = False) -> RunWriter:
    """Return a writer that was given the process, and has written it where that is asked."""

    def is_there() -> bool:
        with RunReader(path) as reader:
            return len(reader.processes) == 1

    writer = RunWriter(path, run_started(), describe)
    writer.put(main_process())
    if is_written:
        until(is_there, "the process")
    return writer


def waits_before_the_gate(path: Path, gate: Gate) -> RunWriter:
    """Return a writer whose thread stands before the gate, its queue empty."""
    writer = RunWriter(path, run_started(), gate.describe)
    writer.put(main_process())
    writer.put(sampled())
    assert gate.reached.wait(60)
    return writer


def events_in(path: Path) -> list[tuple[str, str]]:
    with RunReader(path) as reader:
        return [(event.kind, event.text) for event in reader.events()]


def losses(path: Path) -> list[str]:
    return [text for kind, text in events_in(path) if kind == "loss"]


def notes(path: Path) -> list[str]:
    return [text for kind, text in events_in(path) if kind == "note"]


def test_a_full_queue_drops_what_is_large_and_says_how_much(path: Path, gate: Gate) -> None:
    writer = waits_before_the_gate(path, gate)
    later = STARTED_NS + SECOND_NS
    put = [
        writer.put(records.PointsTaken(later + number, ())) for number in range(QUEUE_LENGTH + 3)
    ]
    assert put.count(False) == 3
    assert writer.put(records.RunEnded(later + QUEUE_LENGTH, "stopped"))
    with RunReader(path) as reader:  # no reader waits for a transaction that is not over
        assert reader.recordings() == []
    gate.open()
    writer.close()
    assert writer.failure is None
    assert losses(path) == ["3 records were dropped: the disk is too slow"]
    with RunReader(path) as reader:
        assert reader.info.state == "ended"


def test_events_are_dropped_last(path: Path, gate: Gate) -> None:
    writer = waits_before_the_gate(path, gate)
    put = [
        writer.put(records.EventHappened(STARTED_NS, EventKind.NOTE, str(number)))
        for number in range(2 * QUEUE_LENGTH + 3)
    ]
    assert put.count(False) == 3
    gate.open()
    writer.close()
    assert notes(path) == [str(number) for number in range(2 * QUEUE_LENGTH)]


MEGABYTE = 1 << 20
MANY_INTERVALS = recording(
    MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, [(CONV, 1)] * (MEGABYTE // 160))]
)
DEEP_STACK = recording(
    MAIN, STARTED_NS, [(MAIN_TID, "MainThread", True, [(CONV[:1] * (MEGABYTE // 64), 1)])]
)


@pytest.mark.parametrize(
    "megabyte",
    [
        records.OutputWritten(STARTED_NS, bytes(MEGABYTE)),
        records.WindowTaken(MAIN, STARTED_NS, "kineto", STARTED_NS, trace=bytes(MEGABYTE)),
        MANY_INTERVALS,
        DEEP_STACK,
    ],
    ids=["output", "a trace", "a recording", "deep stacks"],
)
def test_the_queue_is_bounded_in_memory(path: Path, gate: Gate, megabyte: records.Record) -> None:
    writer = waits_before_the_gate(path, gate)
    taken = sum(itertools.takewhile(bool, (writer.put(megabyte) for _ in range(QUEUE_LENGTH))))
    assert 32 <= taken <= 128
    gate.open()
    writer.close(60)


@pytest.mark.parametrize(
    "error", [RuntimeError("no source"), OSError(5, "Input/output error"), KeyError()]
)
def test_a_record_that_cannot_be_stored_is_dropped_alone(path: Path, error: Exception) -> None:
    def broken(frame: records.Frame) -> records.FrameDescription:
        raise error

    kept = records.EventHappened(STARTED_NS, EventKind.NOTE, "kept")
    write_records(path, [main_process(), sampled(), kept], described=broken)
    assert losses(path) == [f"1 record was dropped: it cannot be stored ({error})"]
    with RunReader(path) as reader:
        assert (list(reader.intervals()), reader.recordings()) == ([], [])
    assert notes(path) == ["kept"]


HUGE = 1 << 63
"""SQLite takes no such number; whoever writes what a target says may meet one."""


@pytest.mark.parametrize(
    "record",
    [
        records.EventHappened(HUGE, EventKind.NOTE, "far"),
        records.WindowTaken(MAIN, STARTED_NS, "kineto", STARTED_NS, start_ns=HUGE, end_ns=HUGE),
        recording(MAIN, STARTED_NS, [(HUGE, "MainThread", True, [(CONV, 1000)])]),
        records.PointsTaken(STARTED_NS, (records.Point("cpu_cores", HUGE, MAIN),)),
        main_process(rank=HUGE),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_number_that_no_file_takes_costs_its_record_alone(
    path: Path, record: records.Record
) -> None:
    ended = records.RunEnded(STARTED_NS + SECOND_NS, "stopped")
    write_records(path, [main_process(), record, sampled(), ended])
    assert losses(path) == [f"1 record was dropped: it cannot be stored ({TOO_LARGE})"]
    with RunReader(path) as reader:
        assert (reader.info.state, len(list(reader.intervals()))) == ("ended", 2)


@pytest.mark.parametrize(("gathers", "wait"), [(True, "GATHER_S"), (False, "WATCHED_GATHER_S")])
def test_readings_wait_for_other_records(
    path: Path, monkeypatch: pytest.MonkeyPatch, gathers: bool, wait: str
) -> None:
    monkeypatch.setattr(f"profd.daemon.store.writer.{wait}", 60.0)
    writer, written = RunWriter(path, run_started(), describe), list[int]()
    commit = writer._tables.commit

    def note(batch: Sequence[records.Record]) -> None:
        commit(batch)
        written.append(len(batch))

    monkeypatch.setattr(writer._tables, "commit", note)
    writer.gathers = gathers
    writer.put(main_process())
    until(lambda: 1 in written, "the process")
    writer.put(records.PointsTaken(STARTED_NS, (records.Point("cpu_cores", 1.0, MAIN),)))
    until(lambda: not writer._queue.qsize(), "the writer to take it")
    writer.put(sampled())
    until(lambda: sum(written) == 3, "the recording")
    assert list(filter(None, written)) == [1, 2]
    writer.close()


TOO_LARGE = "Python int too large to convert to SQLite INTEGER"


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunWriter], Callable[[int], None]]:
    """Give what says how many pages the file of a writer may have, from its next batch on.

    The writer's own thread sets that: two threads at one connection take each other's row ids.
    """

    def fill_of(writer: RunWriter) -> Callable[[int], None]:
        tables, most = writer._tables, [1]
        commit = tables.commit

        def commit_within(batch: Sequence[records.Record]) -> None:
            tables._connection.execute(f"PRAGMA max_page_count = {most[-1]}")
            commit(batch)

        monkeypatch.setattr(tables, "commit", commit_within)
        return most.append

    return fill_of


def test_a_disk_that_stays_full_cuts_the_run_off_and_is_said(
    path: Path, fill: Callable[[RunWriter], Callable[[int], None]]
) -> None:
    writer = begun(path)
    fill(writer)
    for second in range(200):
        writer.put(sampled(STARTED_NS + second * SECOND_NS))
    writer.put(records.OutputWritten(STARTED_NS, b"x" * 100_000))
    until(lambda: bool(writer.trouble), "the writer to meet it")
    writer.close(timeout_s=0.01)
    assert writer.failure == "database or disk is full"
    with RunReader(path) as reader:
        assert reader.info.id == RUN_ID


def test_a_lock_of_another_is_waited_for_and_nothing_is_lost(path: Path) -> None:
    writer = begun(path, is_written=True)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer.put(sampled())
        until(
            lambda: bool(writer.trouble), "the writer to meet the lock"
        )  # its own patience is over then
        assert "locked" in (writer.trouble or "")
        writer.put(sampled(STARTED_NS + SECOND_NS))
    until(lambda: writer.trouble is None, "the writer to go on")
    writer.put(records.RunEnded(STARTED_NS + 2 * SECOND_NS, "stopped"))
    writer.close()
    assert (writer.failure, losses(path)) == (None, [])
    with RunReader(path) as reader:
        assert (reader.info.state, len(reader.recordings())) == ("ended", 2)


def test_what_a_full_disk_costs_is_counted_and_the_run_goes_on(
    path: Path, fill: Callable[[RunWriter], Callable[[int], None]]
) -> None:
    writer = begun(path, is_written=True)
    set_pages = fill(writer)
    seconds = iter(range(1_000_000))
    while writer.put(records.OutputWritten(STARTED_NS + next(seconds) * SECOND_NS, bytes(1 << 20))):
        pass
    set_pages(1 << 30)
    until(lambda: writer.trouble is None, "the writer to go on")
    writer.put(records.RunEnded(STARTED_NS + next(seconds) * SECOND_NS, "stopped"))
    writer.close(60)
    assert writer.failure is None
    assert [text.partition(":")[0] for text in losses(path)] == ["1 record was dropped"]
    with RunReader(path) as reader:
        assert reader.info.state == "ended"


def test_losses_that_go_on_are_said_once_a_minute() -> None:
    counted = Losses()
    said = []
    for second in range(150):
        now_ns = STARTED_NS + second * SECOND_NS
        counted.count(records.OutputWritten(now_ns, b""), "the disk is too slow")
        said += counted.take(now_ns)
    said += counted.take(0, is_end=True)
    assert [event.text.partition(" records")[0] for event in said] == [
        *(
            "1 record was dropped: the disk is too slow",
            "within 59 s 60",
            "within 59 s 60",
            "within 28 s 29",
        )
    ]
    assert counted.take(0, is_end=True) == []


def test_a_damaged_file_ends_the_writer_which_says_why(
    path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def malformed(batch: Sequence[records.Record]) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    writer = waits_before_the_gate(path, gate)
    monkeypatch.setattr(writer._tables, "commit", malformed)
    while writer.put(sampled()):
        pass
    closing = threading.Thread(
        target=writer.close, args=(3600.0,)
    )  # with a full queue it waits for nothing, too
    closing.start()
    gate.open()
    closing.join(60)
    assert not closing.is_alive()
    assert writer.failure == "database disk image is malformed"
    assert not writer.put(records.EventHappened(STARTED_NS, EventKind.NOTE, "small"))
    with RunReader(path) as reader:
        assert reader.info.state == "interrupted"


def test_a_disk_that_is_too_slow_is_given_up_and_said(path: Path, gate: Gate) -> None:
    writer = waits_before_the_gate(path, gate)
    writer.close(timeout_s=0.01)
    assert "too slow" in (writer.failure or "")


class Disk:
    """A disk whose free room the test says, in place of the one that a folder lies on."""

    def __init__(self, whole_bytes: int = 1000 << 30) -> None:
        self.whole_bytes, self.free_bytes = whole_bytes, whole_bytes // 2

    def statvfs(self, folder: Path) -> os.statvfs_result:
        free = self.free_bytes // 4096
        return os.statvfs_result(
            (4096, 4096, self.whole_bytes // 4096, free, free, 0, 0, 0, 0, 255)
        )


@pytest.mark.parametrize(
    ("whole_bytes", "log_bytes", "kept_bytes"),
    [
        (1000 << 30, 0, LEFT_FREE_BYTES),
        (10 << 30, 0, 512 << 20),
        (1000 << 30, 3 << 30, LEFT_FREE_BYTES + (3 << 30)),
    ],
    ids=["of a large disk", "of a small one", "with what folding the log takes"],
)
def test_so_much_is_left_free(
    tmp_path: Path,
    whole_bytes: int,
    log_bytes: int,
    kept_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, path = Disk(whole_bytes), tmp_path / "a.profd"
    monkeypatch.setattr(os, "statvfs", disk.statvfs)
    path.with_name("a.profd-wal").touch()
    os.truncate(path.with_name("a.profd-wal"), log_bytes)
    room, found = Room(path, None), []
    for of_kept in (1.01, 0.99, 1.49, 1.51):
        disk.free_bytes = int(of_kept * kept_bytes)
        room.look()
        found.append(room.is_short)
    assert found == [False, True, True, False]


def test_before_the_disk_is_full_samples_pause_and_go_on_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    monkeypatch.setattr(os, "statvfs", disk.statvfs)
    writer = begun(path, is_written=True)
    disk.free_bytes = LEFT_FREE_BYTES // 2
    writer.put(sampled())
    writer.put(records.EventHappened(STARTED_NS + SECOND_NS, EventKind.NOTE, "small"))
    until(lambda: len(events_in(path)) == 3, "what is small")
    disk.free_bytes = LEFT_FREE_BYTES * 5 // 4  # it is not to stop and go all the time
    writer.put(sampled(STARTED_NS + 2 * SECOND_NS))
    writer.put(records.EventHappened(STARTED_NS + 3 * SECOND_NS, EventKind.NOTE, "small"))
    until(lambda: len(events_in(path)) == 4, "what is small")
    disk.free_bytes = 2 * LEFT_FREE_BYTES
    writer.put(sampled(STARTED_NS + 4 * SECOND_NS))
    writer.close()
    with RunReader(path) as reader:
        assert [row.start_ns for row in reader.recordings()] == [STARTED_NS + 4 * SECOND_NS]
    assert Counter(events_in(path)) == Counter(
        [
            ("loss", "samples and readings pause: 537 MB are free on the disk of the run file"),
            ("loss", "1 record was dropped: there is no room for more"),
            ("note", "small"),
            ("note", "small"),
            ("note", "the recording goes on: 2.1 GB are free on the disk of the run file"),
            ("loss", "1 record was dropped: there is no room for more"),
        ]
    )


def test_a_run_in_memory_is_bounded_in_size(path: Path) -> None:
    writer = RunWriter(path, run_started(), describe, most_bytes=1 << 20)
    writer.put(main_process())
    for second in range(40):
        writer.put(records.OutputWritten(STARTED_NS + second * SECOND_NS, bytes(100_000)))
        until(lambda: writer._queue.empty(), "the writer to take it")
    writer.put(records.RunEnded(STARTED_NS + 40 * SECOND_NS, "stopped"))
    writer.close()
    assert (
        sum(int(count) for text in losses(path) for count in re.findall(r"(\d+) records? w", text))
        > 20
    )
    assert path.stat().st_size < 2 << 20
    pauses = [
        text
        for _, text in events_in(path)
        if text.startswith("samples and readings pause: the run file has ")
    ]
    assert len(pauses) == 1
    with RunReader(path) as reader:
        assert reader.info.state == "ended"


def test_a_reader_that_looks_at_the_end_loses_nothing(path: Path) -> None:
    writer = RunWriter(path, run_started(), describe)
    writer._tables._connection.execute("PRAGMA busy_timeout = 0")
    writer.put(main_process())
    with RunReader(path) as early, early.one_moment():
        writer.put(sampled())
        writer.put(records.RunEnded(STARTED_NS + SECOND_NS, "stopped"))
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
import itertools, signal, sys
from pathlib import Path
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, run_started
from support.training_stacks import CONV, LOSS, describe
from support.waiting import until
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.writer import RunWriter

signal.alarm(300)  # for where the test is killed before it kills this
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
    folder = TESTS
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder)},
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
