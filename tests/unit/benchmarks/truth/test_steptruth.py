"""Diaries of steps are read as the programs write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from truth.steptruth import Diary

from profd.daemon.store.rows import PointRow


def diary(tmp_path: Path, *lines: str) -> Diary:
    path = tmp_path / "diary"
    path.write_text("".join(f"{line}\n" for line in lines))
    return Diary(path)


def test_steps_are_counted_whole_and_in_parts(tmp_path: Path) -> None:
    made = diary(tmp_path, "100 1 1 0", "200 2 2 1", "400 3 3 2").steps
    assert [made.whole(at_ns) for at_ns in (99, 100, 399, 400)] == [0, 1, 2, 3]
    assert made.exact(300) == pytest.approx(2.5)


def test_batches_are_listed_where_a_step_has_several(tmp_path: Path) -> None:
    read = diary(tmp_path, "100 0 1 -", "200 0 2 -", "210 1 2 1", "300 1 3 1")
    assert read.batches is not None
    assert (list(read.steps.ended_ns), list(read.batches.ended_ns)) == ([210], [100, 200, 300])
    assert diary(tmp_path, "100 1 1 -").batches is None


def test_the_number_of_a_script_is_that_of_the_last_step_or_of_this_one(tmp_path: Path) -> None:
    read = diary(tmp_path, "100 1 1 5000", "200 2 2 5001", "300 3 3 5002")
    errors = [
        read.number_error(PointRow(at_ns=150, value=value))
        for value in (4999.0, 5000.0, 5001.0, 5003.0)
    ]
    assert errors == [1.0, 0.0, 0.0, 2.0]


@pytest.mark.parametrize("numbers", [("-", "-", "-"), ("0", "32", "64"), ("8", "9", "0")])
def test_other_numbers_are_not_compared(tmp_path: Path, numbers: tuple[str, str, str]) -> None:
    read = diary(
        tmp_path, *(f"{made}00 {made} {made} {number}" for made, number in enumerate(numbers, 1))
    )
    assert read.number_error(PointRow(at_ns=150, value=0.0)) is None


def test_a_diary_that_is_cut_off_or_empty_tells_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    path.write_text("100 1 1 0\n200 2")
    assert list(Diary(path).steps.ended_ns) == [100]
    assert diary(tmp_path).is_empty
    assert Diary(tmp_path / "none").is_empty
