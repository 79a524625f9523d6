"""Hostile names, paths, source lines and notes come out of every text format as what they are, and do nothing there.

HTML is opened in a browser: tests/integration/test_report_browser.py, test_report_tabs.py, test_diff_browser.py.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import hostile
import pytest

from profd.cli.main import run_command_line
from profd.daemon.analyze.selection import Selection
from profd.daemon.render.exports.csvfiles import csv_files
from profd.daemon.render.exports.svg import flame_graph_svg
from profd.daemon.store.reader import RunReader

HIDDEN = set("\u202e\u2066\u2028\x1b\x00")
SPELLED = "\\u202egnol\\u2066"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return hostile.write_run(tmp_path / "a.profd")


@pytest.mark.parametrize("command", [["summary"], ["export", "--format", "collapsed"], ["export", "--format", "svg"]])
def test_a_terminal_gets_nothing_that_it_would_obey(
    run: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([command[0], str(run), *command[1:]]) == 0
    out = capsys.readouterr().out
    assert not set(out) & HIDDEN
    assert SPELLED in out
    assert hostile.WIDE in out


def test_svg_shows_marks_of_direction_and_runs_nothing(run: Path) -> None:
    with RunReader(run) as reader:
        content = flame_graph_svg(reader, Selection())
    root = ElementTree.fromstring(content)
    assert not set("".join(root.itertext())) & HIDDEN
    names = [text for text in root.itertext() if hostile.MARKUP in text]
    assert names
    assert SPELLED in names[0]
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "img", "foreignObject", "a", "image", "use"}
    assert not [name for element in root.iter() for name in element.attrib if name.lower().startswith("on")]


def test_csv_keeps_every_name_in_its_cell(run: Path) -> None:
    with RunReader(run) as reader:
        files = csv_files(reader, Selection())
    for name, content in files.items():
        rows = list(csv.reader(io.StringIO(content.decode())))
        assert {len(row) for row in rows} == {len(rows[0])}, name
        assert not set(content.decode()) & HIDDEN, name
    samples = files["samples.csv"].decode()
    assert SPELLED in samples
    assert hostile.WIDE in samples
    assert any(hostile.MARKUP in cell for row in csv.reader(io.StringIO(samples)) for cell in row)
    assert SPELLED in files["events.csv"].decode()  # a note
