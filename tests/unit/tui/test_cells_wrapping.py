"""Runs of text broken into lines at their blanks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.style import Style

from profd.daemon.render.plaintext import width
from profd.tui.cells import Run, wrap_runs

PLAIN, BOLD = Style(), Style(bold=True)


def texts(*words: str, cells: int, indent: int = 0) -> list[str]:
    runs = [Run(word, PLAIN) for word in words]
    return ["".join(run.text for run in line) for line in wrap_runs(runs, cells, indent=indent)]


def test_what_fits_stays_on_one_line() -> None:
    assert texts(" ▲ SLOW  ", "it waits", cells=20) == [" ▲ SLOW  it waits"]


def test_a_line_ends_at_a_blank_and_the_next_is_indented() -> None:
    assert texts("it waits 40 % for", " its data", cells=10, indent=2) == ["it waits", "  40 % for", "  its data"]


def test_a_word_of_two_styles_is_not_broken() -> None:
    lines = wrap_runs([Run("at most", PLAIN), Run(" 1", BOLD), Run(".7x", PLAIN)], 8)
    assert [[run.text for run in line] for line in lines] == [["at", " most"], ["1", ".7x"]]
    assert lines[1][0].style == BOLD


def test_wide_characters_take_two_cells() -> None:
    assert texts("名前 の長い", cells=6) == ["名前", "の長い"]


@pytest.mark.parametrize("cells", [0, 1, 3])
def test_a_word_that_is_too_long_is_left_whole(cells: int) -> None:
    assert "incomprehensible" in " ".join(texts("an incomprehensible word", cells=cells, indent=3))


@settings(deadline=None)
@given(st.lists(st.text("ab 名", max_size=12), max_size=6), st.integers(8, 30))
def test_no_word_is_lost_and_no_line_too_long(words: list[str], cells: int) -> None:
    lines = texts(*words, cells=cells, indent=2)
    assert " ".join(lines).split() == "".join(words).split()
    longest = max((width(word) for word in "".join(words).split()), default=0)
    assert all(width(line) <= max(cells, longest + 2) for line in lines)
