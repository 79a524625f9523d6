"""Patterns of frames: what a rule of a table says of one."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from profd.daemon.frameworks.patterns import FramePattern, frame_test, read_patterns
from profd.daemon.store.records import CHANGED_SOURCE
from profd.daemon.store.rows import FrameRow


def test_no_rule_goes_by_the_mark_of_a_file_that_has_changed() -> None:
    changed = FrameRow(1, "load", "/home/train.py", "train.py", 2, False, CHANGED_SOURCE)
    test = frame_test(FramePattern(source="."))
    assert [
        test(replace(changed, source=source)) for source in (CHANGED_SOURCE, None, "x = 1")
    ] == [False, False, True]
    assert frame_test(FramePattern(function=("load",)))(changed)


def test_a_rule_may_go_by_a_meaning_and_by_its_own_conditions() -> None:
    backward = FrameRow(1, "Tensor.backward", "/x/t.py", "torch/_tensor.py", 2, True, "run()")
    rules = (
        FramePattern(means=("backward",)),
        FramePattern(means=("collective",)),
        FramePattern(means=("backward",), source="step"),
    )
    assert [frame_test(rule)(backward) for rule in rules] == [True, False, False]


def test_a_table_that_somebody_edits_counts_at_once(tmp_path: Path) -> None:
    table = tmp_path / "rules.toml"
    for name in ("load", "step"):
        table.write_text(f'[[rule]]\nfunction = ["{name}"]\n')
        assert read_patterns(table, "rule", FramePattern, "")[0].function == (name,)
