"""The cells of a notebook in a history as IPython writes it.

The names of files are those that ipykernel 7 gave.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from profd.daemon import processes
from profd.daemon.stacks.cells import Cell, Cells, murmur
from profd.daemon.stacks.source import SourceTree
from profd.daemon.store.records import Frame
from profd.daemon.userfiles import UserFiles

LOOP = "total = 0\nfor step in range(9):\n    total += step"
LOOP_FILE = f"/tmp/ipykernel_4242/{murmur(LOOP.encode())}.py"
TYPED = "\n\n%cd src\nx = '\x0c\x1c\x85\u2028'\r\ny = 1"
RUN = "get_ipython().run_line_magic('cd', 'src')\nx = '\x0c\x1c\x85\u2028'\r\ny = 1"
SHA1_OF_LOOP = "4b67ef0e3f84"
HASHES = {
    "": 3990065800,
    "a": 2167009006,
    "ab": 2805137849,
    "abc": 3350977461,
    "abcd": 804720481,
    "x = 1\nprint(x)  # é": 3329578156,
}


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Make the history of a user with other cells before and after the loop."""
    folder = tmp_path / "profile_default"
    folder.mkdir()
    history = sqlite3.connect(folder / "history.sqlite")
    history.execute(
        "CREATE TABLE history (session integer, line integer, source text, source_raw text)"
    )
    rows = [(1, 1, "import torch"), (1, 2, LOOP), (2, 1, "import os")]
    history.executemany("INSERT INTO history VALUES (?, ?, ?, ?)", [(*row, row[2]) for row in rows])
    history.execute("INSERT INTO history VALUES (2, 3, ?, ?)", (RUN, TYPED))
    history.commit()
    history.close()
    monkeypatch.setattr(
        processes, "environment", lambda pid, allowed: {"IPYTHONDIR": str(tmp_path)}
    )
    return Cells(UserFiles(), os.getpid())


def test_a_cell_is_found_by_the_hash_in_the_name_of_its_file(cells: Cells) -> None:
    tree = SourceTree(cells=cells)
    for text in (LOOP, LOOP + "\n"):
        file = f"/tmp/ipykernel_4242/{murmur(text.encode())}.py"
        described = tree.describe(Frame("<module>", file, 3))
        assert (described.module_path, described.is_library, described.source) == (
            "cell 2",
            False,
            "total += step",
        )
    assert tree.describe(Frame("<module>", file, 9)).source is None


def test_lines_of_a_cell_are_those_that_python_counts_in_what_it_runs_of_it(cells: Cells) -> None:
    tree, file = SourceTree(cells=cells), f"/tmp/ipykernel_4242/{murmur(TYPED.encode())}.py"
    lines = [tree.describe(Frame("<module>", file, line)).source for line in (1, 2, 3, 4)]
    assert lines == [
        "get_ipython().run_line_magic('cd', 'src')",
        "x = '\x0c\x1c\x85\u2028'",
        "y = 1",
        None,
    ]


def test_a_cell_that_the_history_lacks_has_its_number_where_its_name_tells_it(cells: Cells) -> None:
    assert cells.cell("/tmp/ipykernel_4242/17.py") is None
    assert cells.cell("/home/me/train.py") is None
    assert cells.cell("<ipython-input-7-0123456789ab>") == Cell(7)
    assert cells.cell(f"<ipython-input-2-{SHA1_OF_LOOP}>") == Cell(2, LOOP)


def test_root_opens_no_history_of_another_user(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "owner_uid", lambda pid: os.geteuid() + 1)
    theirs = Cells(UserFiles(), os.getpid())
    assert (cells.cell(LOOP_FILE), theirs.cell(LOOP_FILE)) == (Cell(2, LOOP), None)


def test_the_hash_is_that_of_ipykernel() -> None:
    assert {text: murmur(text.encode()) for text in HASHES} == HASHES
