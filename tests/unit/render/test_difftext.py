"""A comparison as text: what got slower or faster, by how much, in which direction."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from support.pages import embedded
from support.present import there
from support.stepruns import diff_of, write_steps
from support.synthetic import BACKWARD

from profd.cli.main import run_command_line
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.errors import ExitCode
from profd.daemon.render.diffreport import render_diff_report, take_diff_tree
from profd.daemon.render.difftext import diff_text, verdict
from profd.daemon.store.reader import RunReader

SLOW = BACKWARD[-1].function


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("steps")
    return write_steps(folder / "a.profd", 1), write_steps(folder / "b.profd", 2, slower=1.5)


@pytest.mark.parametrize(
    ("order", "longer", "more", "sign"),
    [(1, " longer: ", " more", r"\+"), (-1, " less long: ", " less", "-")],
    ids=["slower", "faster"],
)
def test_what_got_slower_takes_more_and_has_a_plus_and_what_got_faster_a_minus(
    runs: tuple[Path, Path], order: int, longer: str, more: str, sign: str
) -> None:
    diff = diff_of(*runs[::order])
    said = verdict(diff)
    assert longer in said
    assert said.endswith(more)
    (row,) = (line for line in diff_text(diff, 100).splitlines() if line.lstrip().startswith(SLOW))
    assert re.search(rf" {sign}\d+\.\d %  {sign}\d+\.\d % to {sign}\d+\.\d %$", row)


def test_a_name_does_nothing_to_the_terminal(runs: tuple[Path, Path]) -> None:
    diff = diff_of(*runs)
    hostile = msgspec.structs.replace(
        there(diff.first), name="evil\x1b[2J\u202e", module_path="a\x1b[8m.py"
    )
    said = verdict(
        msgspec.structs.replace(
            diff, functions=(hostile,), lines=(), leaves=(), phases=(), likeliest=None
        )
    )
    assert "evil\\x1b[2J\\u202e" in said
    assert not set(said) & set("\x1b\u202e")


def test_the_tree_of_a_page_is_in_seconds_a_step_of_both_runs(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    assert (
        run_command_line(["diff", *map(str, runs), "-o", str(tmp_path)])
        == ExitCode.UNWRITABLE_OUTPUT
    )
    diff = diff_of(*runs)
    with RunReader(runs[0]) as first, RunReader(runs[1]) as second:
        page = render_diff_report((first, second), (MAIN_THREADS, MAIN_THREADS), diff)
    assert re.search(r'<tr class="differs"><th scope="row">lasted', page)
    assert re.search(r'<tr><th scope="row">command</th><td>python train.py --epochs 2', page)
    tree = embedded(page).tree
    assert diff.base.step_s == pytest.approx(tree.base[0], rel=1e-3)
    assert diff.new.step_s == pytest.approx(tree.new[0], rel=1e-3)
    for values in (tree.base, tree.new):
        below = [0.0] * len(values)
        for node, up in enumerate(tree.up):
            if up:
                below[node - up] += values[node]
        inner = [node for node, value in enumerate(below) if value]
        assert [below[node] for node in inner] == pytest.approx(
            [values[node] for node in inner], rel=1e-3
        )
    names = [tree.functionName[function] if function >= 0 else "" for function in tree.key]
    assert names.count(SLOW) == 1
    slow = names.index(SLOW)
    assert tree.new[slow] - tree.base[slow] == pytest.approx(diff.leaves[0].difference, rel=0.02)


def test_a_part_that_has_no_time_of_any_stack_leaves_the_tree_empty(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_time(reader: RunReader, selection: Selection) -> Profile:
        profile = take_profile(reader, selection)
        return msgspec.structs.replace(profile, time_ns=dict.fromkeys(profile.time_ns, 0.0))

    monkeypatch.setattr("profd.daemon.render.diffreport.take_profile", without_time)
    with RunReader(runs[0]) as first, RunReader(runs[1]) as second:
        tree = take_diff_tree((first, second), (MAIN_THREADS, MAIN_THREADS), diff_of(*runs))
    assert (tree["up"], tree["base"], tree["new"]) == ([0], [0.0], [0.0])
