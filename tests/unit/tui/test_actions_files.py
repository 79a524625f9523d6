"""Files that are written from the dashboard: into the current folder, under the run's name, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.synthetic import write_run

from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.errors import ProfdError, RunUnreadable
from profd.tui.actions import export, write_report_of


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return write_run(folder / "a.profd", seconds=2)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current folder, which is another than that of runs."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_report_is_named_after_the_run(run_file: Path, here: Path) -> None:
    written = write_report_of(run_file)
    assert (written.title, written.text) == ("Report written", str(here / "a.html"))
    assert "train.py" in (here / "a.html").read_text()


def test_a_report_that_cannot_be_written_is_none(run_file: Path, here: Path) -> None:
    (here / "a.html").mkdir()
    with pytest.raises(ProfdError, match=r"a\.html"):
        write_report_of(run_file)


def test_a_run_that_cannot_be_read_is_neither_reported_nor_exported(here: Path) -> None:
    broken = here / "broken.profd"
    broken.write_text("no run")
    with pytest.raises(RunUnreadable):
        write_report_of(broken)
    with pytest.raises(RunUnreadable):
        export(broken, "collapsed", MAIN_THREADS)
    assert list(here.iterdir()) == [broken]


def test_a_format_has_the_threads_that_it_tells_apart_or_those_looked_at(run_file: Path, here: Path) -> None:
    done = export(run_file, "collapsed", MAIN_THREADS)
    assert (done.title, done.text) == ("Exported", str(here / "a.collapsed.txt"))
    lines = (here / "a.collapsed.txt").read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 2 * 100
    export(run_file, "speedscope", MAIN_THREADS)
    assert len(json.loads((here / "a.speedscope.json").read_text())["profiles"]) == 4
    export(run_file, "csv", MAIN_THREADS)
    assert (here / "a-csv" / "samples.csv").is_file()
