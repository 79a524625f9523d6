"""The comparison as a file: its trees add up to what was compared, and its text does nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.pages import unpack
from support.stepruns import write_steps
from support.synthetic import BACKWARD

from profd.cli.main import run_command_line
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.compare.diff import Diff, take_diff
from profd.daemon.errors import ExitCode
from profd.daemon.render.diffreport import render_diff_report
from profd.daemon.store.reader import RunReader

SELECTIONS = (MAIN_THREADS, MAIN_THREADS)


def rendered(base: Path, new: Path) -> tuple[str, Any, Diff]:
    with RunReader(base) as first, RunReader(new) as second:
        diff = take_diff(first, second)
        page = render_diff_report((first, second), SELECTIONS, diff)
    found = re.search(r'id="run">([^<]*)<', page)
    assert found
    return page, unpack(found[1]), diff


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return write_steps(tmp_path / "a.profd", 1), write_steps(tmp_path / "b.profd", 2, slower=1.2)


def test_the_tree_is_in_seconds_a_step_of_both_runs_and_has_the_difference(runs: tuple[Path, Path]) -> None:
    _, extract, diff = rendered(*runs)
    tree = extract.tree
    assert diff.base.step_s == pytest.approx(tree.base[0], rel=1e-3)
    assert diff.new.step_s == pytest.approx(tree.new[0], rel=1e-3)
    for values in (tree.base, tree.new):
        below = [0.0] * len(values)
        for node, up in enumerate(tree.up):
            if up:
                below[node - up] += values[node]
        inner = [node for node, value in enumerate(below) if value]
        assert [below[node] for node in inner] == pytest.approx([values[node] for node in inner], rel=1e-3)
    slow = [
        node
        for node, function in enumerate(tree.key)
        if function >= 0 and tree.functionName[function] == BACKWARD[-1].function
    ]
    assert len(slow) == 1
    assert tree.new[slow[0]] - tree.base[slow[0]] == pytest.approx(diff.leaves[0].difference, rel=0.02)


def test_facts_that_differ_are_marked(runs: tuple[Path, Path]) -> None:
    page, _, _ = rendered(*runs)
    assert re.search(r'<tr class="differs"><th scope="row">lasted', page)
    assert re.search(r'<tr><th scope="row">command</th><td>python train.py --epochs 2', page)


def test_a_place_that_cannot_be_written_is_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert run_command_line(["diff", *map(str, runs), "-o", str(tmp_path)]) == ExitCode.UNWRITABLE_OUTPUT
