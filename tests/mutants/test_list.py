"""The list of mutants is one of the code as it is: a text that is gone breaks nothing, and so tests nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants.mutants import Mutant, NotApplicable, all_of, load, mutated, named_tests
from mutants.run import caught_last

ROOT = Path(__file__).parents[2]


def why_not(mutant: Mutant) -> str | None:
    """Return why a mutant is none of the code as it is; None where it is one, with tests to meet."""
    try:
        broken = mutated(mutant, (ROOT / mutant.file).read_text())
        if mutant.file.endswith(".py"):
            compile(broken, mutant.file, "exec")
        return None if named_tests(mutant, ROOT) else "no test mirrors its file, and it names none"
    except (NotApplicable, OSError, SyntaxError) as error:
        return str(error)


def test_each_mutant_applies_to_the_code_and_has_tests_to_meet() -> None:
    mutants = all_of(load(), ())
    assert len(mutants) >= 75
    assert {mutant.name: why for mutant in mutants if (why := why_not(mutant)) is not None} == {}


def test_the_page_of_the_last_run_says_which_tests_to_ask_first(tmp_path: Path) -> None:
    page = tmp_path / "mutants.md"
    page.write_text(
        "| place | the bug | caught by |\n|---|---|---|\n"
        "| `daemon/a.py` cut | it is cut | `unit/test_a.py::test_b[`x`]` |\n"
        "| `daemon/a.py` cut-more | it is cut | **survived**: no test notices |\n"
    )
    found = [
        caught_last(Mutant(name, "daemon/a.py", "", "", ""), page)
        for name in ("cut", "cut-more", "new")
    ]
    assert found == [["tests/unit/test_a.py"], [], []]


def test_a_text_that_is_gone_or_stands_twice_is_no_mutant() -> None:
    mutant = Mutant("gone", "daemon/clock.py", "word", "other", "nothing")
    assert mutated(mutant, "a word") == "a other"
    for text, times in (("", 0), ("word word", 2)):
        with pytest.raises(NotApplicable, match=f"stands {times} times"):
            mutated(mutant, text)
