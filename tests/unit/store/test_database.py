"""Files that are no run files, or no longer: each is one clear error with its remedy."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support import hostilefiles
from support.synthetic import write_run

from profd.daemon.errors import OutputUnwritable, RunUnreadable
from profd.daemon.store import database
from profd.daemon.store.reader import RunReader


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run.profd", seconds=5)


def text(path: Path) -> None:
    path.write_text("epoch 1: loss 0.3\n" * 1000)


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE users (name)")


def newer(path: Path) -> None:
    write_run(path, seconds=1)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")


def without_first_records(path: Path) -> None:
    write_run(path, seconds=1)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'target'")


def with_words_for_numbers(path: Path) -> None:
    write_run(path, seconds=1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = 'python train.py' WHERE name = 'command'")


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")


def header_alone(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(16))


@pytest.mark.parametrize(
    ("make", "message", "remedy"),
    [
        (lambda path: None, "No such file", "profd ls"),
        (Path.mkdir, "is no run file", "profd ls"),
        (os.mkfifo, "is no run file", "profd ls"),
        (Path.touch, "is no run file", "profd ls"),
        (text, "is no run file", "profd ls"),
        (other_database, "no run file of profd", "profd ls"),
        (newer, f"has format {database.SCHEMA_VERSION + 1}", "update profd"),
        (without_first_records, "first records are missing", ".recover"),
        (without_tables, "first records are missing", ".recover"),
        (with_words_for_numbers, "malformed", ".recover"),
        (header_alone, "cannot be read", ".recover"),
    ],
)
def test_what_is_no_run_file_says_so(make: Callable[[Path], object], message: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "given.profd"
    make(path)
    with pytest.raises(RunUnreadable) as failure:
        RunReader(path)
    assert message in failure.value.what
    assert str(path) in failure.value.what
    assert remedy in failure.value.remedy


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_file_cut_short_says_so(run: Path, kept: float) -> None:
    os.truncate(run, int(run.stat().st_size * kept))
    with pytest.raises(RunUnreadable, match=r"cut short|no run file"):
        RunReader(run)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_is_not_ours_to_read_says_so(run: Path) -> None:
    run.chmod(0)
    with pytest.raises(RunUnreadable, match="Permission denied"):
        RunReader(run)


@pytest.mark.parametrize("seed", range(30))
def test_bytes_gone_bad_are_an_error_of_the_file_or_go_unnoticed(run: Path, seed: int) -> None:
    noise = random.Random(seed)
    data = bytearray(run.read_bytes())
    for _ in range(8):
        place = noise.randrange(100, len(data))
        data[place : place + 32] = noise.randbytes(32)
    run.write_bytes(data)
    with contextlib.suppress(RunUnreadable), RunReader(run) as reader:
        for stack in reader.stacks:
            reader.frames_of(stack)
        reader.main_threads()
        for series in reader.series:
            reader.points(series)
        assert [*reader.intervals(), *reader.recordings(), *reader.events(), *reader.output()]


@pytest.mark.parametrize("make", [without_tables, other_database, newer])
def test_failing_to_open_leaves_nothing_open(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "given.profd")
    gc.collect()  # what the making itself left to be collected
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunUnreadable) as failure:
        RunReader(tmp_path / "given.profd")
    assert len(os.listdir("/proc/self/fd")) == before
    assert failure.value.__traceback__ is not None  # which would keep the connection alive


def test_run_files_are_told_by_their_first_bytes_and_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.profd"
    database.create(path).close()
    assert path.read_bytes()[68:72] == b"prfd"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    text(tmp_path / "given.profd")
    before = (tmp_path / "given.profd").read_bytes()
    with pytest.raises(OutputUnwritable, match="File exists") as failure:
        database.create(tmp_path / "given.profd")
    assert failure.value.remedy
    assert (tmp_path / "given.profd").read_bytes() == before


def test_a_folder_that_is_not_there_is_an_error_of_the_output(tmp_path: Path) -> None:
    with pytest.raises(OutputUnwritable, match="No such file"):
        database.create(tmp_path / "none" / "new.profd")


def test_odd_names_are_read(tmp_path: Path) -> None:
    path = write_run(tmp_path / "50% of #1? caf\u00e9.profd", seconds=1)
    with RunReader(path) as reader:
        assert reader.info.state == "ended"


def test_reading_changes_nothing(run: Path) -> None:
    with RunReader(run) as reader, pytest.raises(RunUnreadable, match="readonly"):
        reader._query("DELETE FROM meta")


def test_a_copy_holds_what_the_log_still_held(tmp_path: Path) -> None:
    path = write_run(tmp_path / "live.profd", seconds=1)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE meta SET value = 'in the log' WHERE name = 'host'")
        connection.commit()
        with RunReader(path) as reader, reader.one_moment():
            database.copy_whole(path, tmp_path / "copy.profd")
    connection.close()
    with RunReader(tmp_path / "copy.profd") as reader:
        assert reader.info.host == "in the log"
        assert reader.recordings()
    assert sorted(found.name for found in tmp_path.glob("copy*")) == ["copy.profd"]


def test_a_copy_that_cannot_be_written_says_so(run: Path) -> None:
    with pytest.raises(OutputUnwritable):
        database.copy_whole(run, run.parent / "none" / "copy.profd")


@pytest.mark.parametrize("table", ["meta", "process", "stack", "event", "interval", "recording_by_time"])
def test_a_file_whose_pages_are_linked_many_times_says_so(table: str, run: Path) -> None:
    hostilefiles.link_many_times(run, table, levels=6)
    with pytest.raises(RunUnreadable, match="its size accounts for"), RunReader(run) as reader:
        assert [*reader.events(), *reader.intervals(), *reader.recordings(1)] == []
