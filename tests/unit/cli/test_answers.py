"""Answers to a language model are bounded, whole over their pages, and marked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from profd.cli.answers import MOST_BYTES, answer, hang_lines, tree_lines
from profd.daemon.analyze.incidents import Hang, HangPlace
from profd.daemon.api.run import StackTime
from profd.daemon.errors import UsageError
from profd.daemon.render.plaintext import visible
from profd.daemon.store.records import Stand

PAGE = re.compile(
    r"Page (\d+) of (\d+)(, page=\d+ has more)?\. .*\n<(data-\w{8})>\n(.*)\n</\4>", re.S
)


@given(some.lists(some.text(max_size=300), min_size=1, max_size=30), some.integers(1, 60))
def test_pages_are_short_and_together_are_the_text(lines: list[str], times: int) -> None:
    text, found, page, last = "\n".join(lines * times), list[str](), 1, 1
    while page <= last:
        said = answer(text, page)
        assert len(said.encode()) <= MOST_BYTES
        match = PAGE.fullmatch(said)
        assert match is not None
        last, page = int(match[2]), page + 1
        assert bool(match[3]) == (page <= last)
        found += match[5].split("\n")
    shown = [visible(line) for line in text.split("\n")]
    assert len(found) == len(shown)
    for line, whole in zip(found, shown, strict=True):
        assert line == whole or (line.endswith("…") and whole.startswith(line[:-1]))
    with pytest.raises(UsageError, match="there is no page"):
        answer(text, last + 1)


def test_each_answer_has_marks_of_its_own() -> None:
    assert len({answer("a", 1) for _ in range(20)}) == 20


def stack(seconds: float, *frames: str) -> StackTime:
    place = (7, "main", None, "MainThread", 7, "forward", round(100 * seconds), seconds)
    return StackTime(*place, frames[-1], "a.py", 1, frames)


def test_a_tree_has_the_time_of_each_frame_and_leaves_out_what_is_hardly_any() -> None:
    stacks = [stack(6, "main", "a", "b"), stack(3.98, "main", "a"), stack(0.02, "main", "c")]
    assert list(tree_lines(stacks))[1:] == [
        "10.0 s 100.0 % forward main",
        " 10.0 s 99.8 % forward a",
        "  6.0 s 60.0 % forward b",
    ]
    assert len(list(tree_lines([]))) == 1
    deep = stack(1, *(f"f{depth}" for depth in range(5000)))
    assert len(list(tree_lines([deep]))) == 5001


def test_a_hang_is_told_with_whole_stacks() -> None:
    stand = Stand("rank 0", 7, "main", 0, "MainThread", True, "waits for rank 1")
    hang = Hang(
        60, 90, None, "collective", "rank 1 is behind", (HangPlace(("f", "g"), (stand,)),), ("x",)
    )
    assert list(hang_lines([hang])) == [
        "▲ 1 min 00 s into the run: rank 1 is behind; it did not go on",
        "  cause: collective",
        "  x",
        "  rank 0, thread MainThread: waits for rank 1",
        "    f",
        "    g",
    ]
