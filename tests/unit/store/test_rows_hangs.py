"""Hangs in the run file: written, read, ended, absent from an older file, and refused where they are damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.synthetic import STARTED_NS, main_process, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, HangEnded, HangFound, HangGroup, HangReport, Stand
from profd.daemon.store.writer import RunWriter

AT_NS = STARTED_NS + 40 * SECOND_NS
STAND = Stand("rank 0", 4242, "main", 0, "MainThread", True, "a lock (futex 0x1)")
REPORT = HangReport("collective", (HangGroup((Frame("all_reduce", "c10d.py", 3),), (STAND,)),), ("the last step is 9",))
FOUND = HangFound(AT_NS, STARTED_NS, "no progress for 40 s", REPORT)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.profd"
    writer = RunWriter(path, run_started(), describe)
    for record in (main_process(), FOUND, HangEnded(AT_NS + SECOND_NS, AT_NS)):
        assert writer.put(record)
    writer.close()
    assert writer.failure is None
    return path


def change(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


def test_a_hang_comes_back_as_it_was_told(run: Path) -> None:
    with RunReader(run) as reader:
        (hang,) = reader.hangs()
    assert (hang.at_ns, hang.since_ns, hang.ended_ns) == (AT_NS, STARTED_NS, AT_NS + SECOND_NS)
    assert (hang.cause, hang.text, hang.report) == ("collective", "no progress for 40 s", REPORT)


def test_an_older_file_has_none(run: Path) -> None:
    change(run, "DROP TABLE hang")
    with RunReader(run) as reader:
        assert reader.hangs() == []


def test_a_damaged_report_is_said(run: Path) -> None:
    change(run, "UPDATE hang SET report = '{\"cause\": 3}'")
    with RunReader(run) as reader, pytest.raises(RunUnreadable):
        reader.hangs()
