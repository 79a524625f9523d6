"""Run files whose schema is not that of a run: what their author wrote into it never runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.synthetic import write_run

from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader

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
    "a generated column beside the others": "ALTER TABLE event ADD COLUMN other AS (zeroblob(900000000))",
    "a column more": "ALTER TABLE event ADD COLUMN other",
    "a column with a default": "DROP TABLE output; CREATE TABLE output (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL "
    "DEFAULT (random()), data BLOB NOT NULL)",
    "a key that is none": "DROP TABLE output; CREATE TABLE output (id INTEGER, at_ns INTEGER NOT NULL, data BLOB)",
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


def spoiled(path: Path, script: str) -> Path:
    write_run(path, seconds=2)
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_what_no_run_file_has_is_refused_before_anything_is_read(script: str, tmp_path: Path) -> None:
    path = spoiled(tmp_path / "given.profd", script)
    with pytest.raises(RunUnreadable, match=r"is none that a run file has"):
        RunReader(path)


def test_a_file_that_is_older_may_lack_tables_columns_and_indexes(tmp_path: Path) -> None:
    path = spoiled(
        tmp_path / "old.profd",
        "DROP TABLE hang; DROP TABLE device; DROP INDEX series_by_name; ALTER TABLE placement DROP COLUMN job",
    )
    with RunReader(path) as reader:
        assert reader.info.state == "ended"
        assert reader.hangs() == []
