"""Each format leads to its module, and tables go into a folder or nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import write_run

from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.errors import OutputUnwritable
from profd.daemon.exports.formats import FORMATS, write_tables
from profd.daemon.exports.tables import TABLES
from profd.daemon.store.reader import RunReader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(write_run(tmp_path / "a.profd", seconds=2)) as reader:
        yield reader


def test_each_format_has_an_ending_of_its_own() -> None:
    assert len({each.ending for each in FORMATS.values()}) == len(FORMATS)


def test_formats_of_one_file_and_of_several_are_what_they_say(reader: RunReader) -> None:
    assert json.loads(FORMATS["speedscope"].made(reader, MAIN_THREADS))["$schema"].endswith("file-format-schema.json")
    assert FORMATS["svg"].made(reader, MAIN_THREADS).lstrip().startswith((b"<svg", b"<?xml"))
    assert FORMATS["pprof"].made(reader, MAIN_THREADS).startswith(b"\x1f\x8b")
    collapsed = FORMATS["collapsed"].made(reader, MAIN_THREADS).decode()
    assert collapsed.endswith("\n")
    assert sum(int(line.rpartition(" ")[2]) for line in collapsed.splitlines()) == 200
    assert list(FORMATS["csv"].made(reader, MAIN_THREADS)) == [f"{name}.csv" for name in TABLES]


def test_tables_are_written_into_a_folder_that_is_made(tmp_path: Path) -> None:
    files = {"a.csv": b"1\n", "b.csv": b"2\n"}
    assert write_tables(files, tmp_path / "new" / "folder") == [tmp_path / "new" / "folder" / name for name in files]
    assert {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()} == files


def test_a_folder_that_cannot_be_made_is_an_error_and_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputUnwritable, match="cannot make the folder"):
        write_tables({"a.csv": b"1\n"}, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
