"""Files that are no run files, or no longer: each is one clear error with its remedy."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support import hostilefiles
from support.synthetic import STARTED_NS, describe, main_process, run_started, write_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable, RunUnreadable
from profd.daemon.store import database, records
from profd.daemon.store.database import LEAST_ROW_BYTES, BoundedConnection
from profd.daemon.store.findings import findings_now, findings_of_whole, rules_found
from profd.daemon.store.reader import RunReader
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import TimeRange


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run.profd", seconds=5)


def text(path: Path) -> None:
    path.write_text("epoch 1: loss 0.3\n" * 1000)


def spoiled(path: Path, script: str) -> Path:
    write_run(path, seconds=2)
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")


def header_alone(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(16))


LATER = database.SCHEMA_VERSION + 1
YEAR_NS = 366 * 86400 * SECOND_NS


def ends_after(ns: int) -> Callable[[Path], Path]:
    """Return a function that writes a run whose end lies so far behind its start."""
    return partial(
        spoiled, script=f"UPDATE meta SET value = {STARTED_NS + ns} WHERE name = 'ended_ns'"
    )


@pytest.mark.parametrize(
    ("make", "message", "remedy"),
    [
        (lambda path: None, "No such file", "profd ls"),
        (Path.mkdir, "is no run file", "profd ls"),
        (os.mkfifo, "is no run file", "profd ls"),
        (Path.touch, "is no run file", "profd ls"),
        (text, "is no run file", "profd ls"),
        (partial(spoiled, script="PRAGMA application_id = 7"), "no run file of profd", "profd ls"),
        (
            partial(spoiled, script=f"PRAGMA user_version = {LATER}"),
            f"has format {LATER}",
            "update profd",
        ),
        (
            partial(spoiled, script="DELETE FROM meta WHERE name = 'target'"),
            "first records are missing",
            ".recover",
        ),
        (without_tables, "first records are missing", ".recover"),
        (
            partial(spoiled, script="UPDATE meta SET value = 'x' WHERE name = 'command'"),
            "malformed",
            ".recover",
        ),
        (
            partial(
                spoiled, script=f"UPDATE meta SET value = '{'[' * 10_000}' WHERE name = 'options'"
            ),
            "recursion",
            ".recover",
        ),
        (header_alone, "cannot be read", ".recover"),
        (ends_after(-1), "ends before it starts, or ten years later", ".recover"),
        (ends_after(10 * YEAR_NS + 1), "ends before it starts, or ten years later", ".recover"),
    ],
)
def test_what_is_no_run_file_says_so(
    make: Callable[[Path], object], message: str, remedy: str, tmp_path: Path
) -> None:
    path = tmp_path / "given.profd"
    make(path)
    gc.collect()  # what the making itself left to be collected
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(
        RunUnreadable
    ) as failure:  # its traceback would keep alive what is left open
        RunReader(path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert message in failure.value.what
    assert str(path) in failure.value.what
    assert remedy in failure.value.remedy


@pytest.mark.parametrize("length_ns", [0, 10 * YEAR_NS])
def test_a_run_may_be_short_or_last_for_years(length_ns: int, tmp_path: Path) -> None:
    with RunReader(ends_after(length_ns)(tmp_path / "run.profd")) as reader:
        assert reader.info.end_ns == STARTED_NS + length_ns


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


def test_run_files_have_an_application_id_and_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new.profd"
    database.create(path).close()
    assert path.read_bytes()[68:72] == b"prfd"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_is_made_only_where_there_is_none_and_a_folder(tmp_path: Path) -> None:
    text(tmp_path / "given.profd")
    before = (tmp_path / "given.profd").read_bytes()
    with pytest.raises(OutputUnwritable, match="File exists") as failure:
        database.create(tmp_path / "given.profd")
    assert failure.value.remedy
    assert (tmp_path / "given.profd").read_bytes() == before
    with pytest.raises(OutputUnwritable, match="No such file"):
        database.create(tmp_path / "none" / "new.profd")
    with pytest.raises(OutputUnwritable):
        database.copy_whole(
            write_run(tmp_path / "a.profd", seconds=1), tmp_path / "none" / "copy.profd"
        )


def test_files_of_odd_names_are_read_and_not_changed(tmp_path: Path) -> None:
    path = write_run(tmp_path / "50% of #1? caf\u00e9.profd", seconds=1)
    with RunReader(path) as reader:
        assert reader.info.state == "ended"
        with pytest.raises(RunUnreadable, match="readonly"):
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


@pytest.mark.parametrize(
    "table", ["meta", "process", "stack", "event", "interval", "recording_by_time"]
)
def test_a_file_whose_pages_are_linked_many_times_says_so(table: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run.profd", seconds=2)  # so that each table has one page
    hostilefiles.link_many_times(run, table, levels=6)
    with pytest.raises(RunUnreadable, match="its size accounts for"), RunReader(run) as reader:
        assert [*reader.events(), *reader.intervals(), *reader.recordings(TimeRange(1))] == []


def bounded(path: Path) -> contextlib.closing[BoundedConnection]:
    connection = sqlite3.connect(path, factory=BoundedConnection)
    connection.bound(path)
    return contextlib.closing(connection)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of the smallest rows there are, packed as tightly as SQLite can."""
    path = tmp_path / "small.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE row (one)")
        connection.executemany(
            "INSERT INTO row (rowid, one) VALUES (?, NULL)", ((at,) for at in range(100))
        )
        connection.executemany("INSERT INTO row VALUES (?)", ((None,) for _ in range(50_000)))
    return path


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        (
            "SELECT one.rowid FROM row AS one, row AS other LIMIT 1000000",
            "gives more than its size",
        ),
        ("SELECT zeroblob(10000) FROM row", "gives more than its size"),
        # It would end in some seconds, so that a reader without a bound is seen by its answer.
        (
            "SELECT count(*) FROM row AS one, row AS two WHERE two.rowid <= 500",
            "more work than its size",
        ),
        ("SELECT 1 FROM missing", "no such table"),
    ],
    ids=[
        "more rows than a file can hold",
        "more text than a file can hold",
        "too much work",
        "another failure",
    ],
)
def test_a_query_without_end_is_an_error_and_the_next_one_is_answered(
    path: Path, query: str, meant: str
) -> None:
    with bounded(path) as connection:
        with pytest.raises(sqlite3.DatabaseError, match=meant):
            connection.rows(query)
        assert len(connection.rows("SELECT one FROM row")) == 50_100
        assert path.stat().st_size / 50_100 >= LEAST_ROW_BYTES


def test_bounds_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE row (one)")
        writer.commit()
        with bounded(path) as connection:
            assert connection.rows("SELECT one FROM row") == []
            writer.executemany("INSERT INTO row VALUES (?)", ((None,) for _ in range(100_000)))
            writer.commit()
            assert len(connection.rows("SELECT one FROM row")) == 100_000
            assert connection.rows("SELECT sum(one IS NULL) FROM row") == [(100_000,)]


ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
HOSTILE = {
    "a view in place of a table": f"""
        DROP TABLE event;
        CREATE VIEW event AS {ENDLESS} i AS id, i AS at_ns, 'note' AS kind, NULL AS process, 'x' AS text FROM n
    """,
    "a view beside the tables": "CREATE VIEW other AS SELECT * FROM meta",
    "a trigger": "CREATE TRIGGER other AFTER INSERT ON event BEGIN DELETE FROM event; END",
    "a generated column in place of a stored one": """
        DROP TABLE output;
        CREATE TABLE output (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, data BLOB AS (zeroblob(900000000)))
    """,
    "a generated column beside the others": "ALTER TABLE event ADD COLUMN other AS "
    "(zeroblob(900000000))",
    "a column more": "ALTER TABLE event ADD COLUMN other",
    "a column with a default": "DROP TABLE output; CREATE TABLE output (id INTEGER PRIMARY KEY, "
    "at_ns INTEGER NOT NULL DEFAULT (random()), data BLOB NOT NULL)",
    "a key that is none": "DROP TABLE output; CREATE TABLE output (id INTEGER, at_ns INTEGER NOT "
    "NULL, data BLOB)",
    "a virtual table": "DROP TABLE output; CREATE VIRTUAL TABLE output USING fts5(id, at_ns, data)",
    "a table more": "CREATE TABLE other (one)",
    "an index on an expression": "CREATE INDEX other ON event (length(hex(text)))",
    "an index of our name on an expression": "DROP INDEX recording_by_time; "
    "CREATE INDEX recording_by_time ON recording (abs(start_ns))",
    "an index of our name on a part": "DROP INDEX recording_by_time; "
    "CREATE INDEX recording_by_time ON recording (start_ns) WHERE start_ns > 5",
    "an index of our name on another table": "DROP INDEX recording_by_time; "
    "CREATE INDEX recording_by_time ON hang (since_ns)",
    "statistics that mislead": "ANALYZE",
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_what_no_run_file_has_is_refused_before_anything_is_read(
    script: str, tmp_path: Path
) -> None:
    path = spoiled(tmp_path / "given.profd", script)
    with pytest.raises(RunUnreadable, match=r"is none that a run file has"):
        RunReader(path)


OLDER = """
    DROP TABLE hang; DROP TABLE device; DROP TABLE window; DROP TABLE finding; DROP TABLE placement;
    DROP TABLE window_gpu; DROP TABLE host_gap; DROP TABLE window_wait; DROP INDEX series_by_name;
    DROP TABLE frame_without_gradients
"""


def test_a_file_that_is_older_may_lack_tables_columns_and_indexes(tmp_path: Path) -> None:
    with RunReader(spoiled(tmp_path / "old.profd", OLDER)) as reader:
        assert reader.info.state == "ended"
        assert (reader.hangs(), reader.devices(), reader.windows(), reader.placements()) == (
            [],
            [],
            [],
            {},
        )
        assert (reader.window_gpus(1), reader.host_gaps(1), reader.window_waits(1)) == ([], [], [])
        assert (findings_now(reader), findings_of_whole(reader), rules_found(reader)) == (
            [],
            [],
            [],
        )
    with RunReader(
        spoiled(tmp_path / "later.profd", "ALTER TABLE placement DROP COLUMN job")
    ) as reader:
        assert reader.placements() == {}


def left_live(path: Path) -> Path:
    """Make a run file as its recorder has it, with what was written last in its log.

    Return the log.
    """
    connection = database.create(path)
    log = path.with_name(f"{path.name}-wal")
    kept = path.with_name("kept")
    kept.write_bytes(path.read_bytes())
    kept_log = path.with_name("kept-wal")
    kept_log.write_bytes(log.read_bytes())
    connection.close()
    database.remove(path)
    kept.rename(path)
    kept_log.rename(log)
    return log


def test_a_copy_of_a_live_run_without_its_log_says_that_the_log_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "run.profd"
    log = left_live(path)
    with pytest.raises(RunUnreadable, match="first records are missing"):
        RunReader(path)
    log.unlink()
    with pytest.raises(
        RunUnreadable, match=r"nothing of a run without its log, and run\.profd-wal is not"
    ):
        RunReader(path)
    with contextlib.closing(
        sqlite3.connect(path)
    ) as connection:  # a part of it was folded into the file
        connection.executescript(
            f"{database.TEXT}; PRAGMA application_id = {database.APPLICATION_ID}"
        )
        connection.execute(f"PRAGMA user_version = {database.SCHEMA_VERSION}")
    with pytest.raises(
        RunUnreadable, match=r"nothing of a run without its log, and run\.profd-wal is not"
    ):
        RunReader(path)


class Refusing:
    """Refuses to connect but to what nobody writes, as SQLite does in a folder that is not
    writable.
    """

    def __init__(self, code: int) -> None:
        self.asked: list[str] = []
        self._code, self._connect = code, database._connect_as

    def __call__(self, path: Path, how: str) -> BoundedConnection:
        self.asked.append(how)
        if "immutable" in how:
            return self._connect(path, how)
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = self._code
        raise error


@pytest.mark.parametrize("code", [1544, 14])
def test_a_run_in_a_folder_that_is_not_writable_is_read_as_what_nobody_writes(
    run: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Refusing(code)
    monkeypatch.setattr(database, "_connect_as", refusing)
    with RunReader(run) as reader:
        assert reader.recordings()
    run.with_name(f"{run.name}-wal").touch()
    with RunReader(run) as reader:
        assert reader.recordings()
    assert refusing.asked == ["mode=ro&immutable=1", "mode=ro", "mode=ro&immutable=1"]


def test_a_reader_of_a_whole_run_leaves_nothing_beside_it(run: Path) -> None:
    with RunReader(run):
        assert [one.name for one in run.parent.iterdir()] == [run.name]
    assert [one.name for one in run.parent.iterdir()] == [run.name]


def test_a_log_is_not_left_out_where_it_cannot_be_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.with_name(f"{run.name}-wal").write_bytes(b"more")
    monkeypatch.setattr(database, "_connect_as", Refusing(14))
    with pytest.raises(RunUnreadable, match="attempt to write"):
        RunReader(run)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(
        RunUnreadable, match="its log cannot be read in a folder that you may not write to"
    ) as raised:
        RunReader(run)
    assert raised.value.remedy == f"copy it and {run.name}-wal to another one"


def test_the_last_reader_of_an_ended_run_folds_the_log_that_its_recorder_could_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.profd"
    tables = Tables(database.create(path), describe)
    tables.begin(run_started())
    tables.commit([main_process()])
    readers = [RunReader(path), RunReader(path)]
    tables.commit([records.RunEnded(STARTED_NS + 5 * SECOND_NS, "stopped", None, None)])
    tables.finish()
    tables.close()
    for reader in readers:
        reader.refresh()
        assert path.with_name(f"{path.name}-wal").exists()
        reader.close()
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    with RunReader(path) as reader:
        assert (reader.info.state, len(reader.processes)) == ("ended", 1)


def test_the_log_of_a_run_that_has_not_ended_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.profd"
    tables = Tables(database.create(path), describe)
    tables.begin(run_started(live=True))
    reader = RunReader(path)
    tables.close()
    reader.close()
    assert path.with_name(f"{path.name}-wal").exists()


def test_a_sparse_file_is_not_believed_to_be_as_large_as_it_says(run: Path) -> None:
    sound = database.honest_size(run)
    assert sound == run.stat().st_size
    os.truncate(run, 1 << 40)
    assert database.honest_size(run) < 16 * sound + (16 << 20)


def test_statistics_that_never_end_are_not_read_to_their_end(tmp_path: Path) -> None:
    """SQLite reads them with the first statement: here a few pages are four to the power of 18."""
    path = write_run(tmp_path / "a.profd")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ANALYZE")
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_stat1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    count, at = len(data) // size, (root - 1) * size

    def above(page: int) -> bytes:
        """Return a page that has another one four times below it."""
        cells = b"".join(struct.pack(">IB", page, number) for number in range(1, 4))
        places = struct.pack(">3H", *range(size - 15, size, 5))
        head = struct.pack(">BHHHBI", 5, 0, 3, size - 15, 0, page) + places
        return head + bytes(size - len(head) - len(cells)) + cells

    data += data[at : at + size]
    for page in range(count + 1, count + 18):
        data += above(page)
    data[at : at + size] = above(count + 18)
    data[28:32] = struct.pack(">I", count + 18)
    path.write_bytes(data)
    with pytest.raises(RunUnreadable):
        RunReader(path)
