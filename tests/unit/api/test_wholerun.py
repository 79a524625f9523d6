"""The answers about the whole of a long run that its file keeps."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.agreementruns import RUNS
from support.synthetic import STARTED_NS, write_run

from profd import daemon
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.api import wholerun
from profd.daemon.api.run import Run, take_lines
from profd.daemon.api.wholerun import look_at_end, take_answers
from profd.daemon.compare.diff import take_compared
from profd.daemon.errors import RunUnreadable
from profd.daemon.findings.analyst import look_at_all
from profd.daemon.findings.catalog import analysis_name, answered
from profd.daemon.render.summary import summarize
from profd.daemon.store.findings import write_findings
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken

TAKES: tuple[Callable[..., object], ...] = (summarize, take_lines, take_compared)


def keep(path: Path, answers: dict[str, bytes], made_by: str) -> Path:
    """Write a run whose file has these answers."""
    return write_run(path, also=[FindingsTaken(STARTED_NS, (), made_by, answers)])


@pytest.mark.parametrize(
    "name", ["all views", "two ranks with a window", "two GPUs", "pauses of readings", "a day"]
)
def test_what_the_file_keeps_is_what_all_rows_tell(tmp_path: Path, name: str) -> None:
    RUNS[name](path := tmp_path / "a.profd")
    with RunReader(path) as reader:
        answers, told = take_answers(reader), [take(reader) for take in TAKES]
    found = msgspec.structs.replace(look_at_all(path), answers=answers)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS answer (question TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
        )
        connection.execute("DELETE FROM finding WHERE is_whole")
        write_findings(connection, found)
        connection.execute("DELETE FROM recording")  # who read all rows would find another run
        connection.execute("DELETE FROM point")
    with RunReader(path) as reader:
        assert [answered(take, reader) for take in TAKES] == told
        assert summarize(reader) != told[0]


def test_only_the_whole_run_is_answered_from_its_file(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "plain.profd")) as reader:
        kept = msgspec.structs.replace(summarize(reader), name="as kept")
    answers = {"summarize": msgspec.msgpack.encode(kept)}
    path = keep(tmp_path / "a.profd", answers, analysis_name())
    with Run(RunReader(path)) as run:
        assert run.summary().name == "as kept"
        assert run.summary(rank=None, from_=1).name != "as kept"
        assert len(run.lines()) > 0
        selection = Selection(main_threads=True, phase="forward")
        assert answered(summarize, run.reader, selection) == summarize(run.reader, selection)


@pytest.mark.parametrize("why", ["version", "rules", "none", "older file"])
def test_other_answers_than_this_version_gives_are_not_taken(
    tmp_path: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    with RunReader(write_run(tmp_path / "plain.profd")) as reader:
        kept = msgspec.structs.replace(summarize(reader), name="as kept")
    answers = {} if why == "none" else {"summarize": msgspec.msgpack.encode(kept)}
    path = keep(tmp_path / "a.profd", answers, analysis_name())
    if why == "version":
        monkeypatch.setattr(daemon, "VERSION", "9.9")
    elif why == "rules":
        monkeypatch.setenv("PROFD_HOME", str(profd_home))
        profd_home.mkdir(exist_ok=True)
        (profd_home / "phases.toml").write_text('[[rule]]\nphase = "loss"\nfunction = ["none"]\n')
    elif why == "older file":
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TABLE answer")
    with RunReader(path) as reader:
        assert answered(summarize, reader) == summarize(reader) != kept


def test_an_answer_that_is_damaged_makes_the_run_unreadable(tmp_path: Path) -> None:
    path = keep(tmp_path / "a.profd", {"summarize": b"\x93\x01"}, analysis_name())
    with RunReader(path) as reader, pytest.raises(RunUnreadable):
        answered(summarize, reader)


def test_a_long_run_is_answered_at_its_end_in_a_hundredth_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path / "a.profd", seconds=20)
    assert [one.answers for one in look_at_end(path)] == [{}]
    monkeypatch.setattr(wholerun, "HOUR_MINUTES", 1 / 6)  # so that 20 s are two hours
    most = path.stat().st_size // 100
    for size, kept in ((most, True), (most + 1, False)):
        answers = {"summarize": bytes(size)}
        monkeypatch.setattr(wholerun, "take_answers", lambda _, answers=answers: answers)
        found, *more = look_at_end(path)
        assert found.made_by == analysis_name()
        expected = msgspec.structs.replace(found, findings=(), answers=answers)
        assert more == ([expected] if kept else [])
    with RunReader(path) as reader:
        asked = {"summarize", "take_lines", "take_compared"}
        assert take_answers(reader).keys() == asked
        assert answered(take_lines, reader, MAIN_THREADS, False) == take_lines(
            reader, MAIN_THREADS, False
        )
