from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from profd.daemon.render.plaintext import cut, fit, visible, width, wrapped


@given(some.text(), some.integers(0, 30), some.booleans(), some.booleans())
def test_what_is_fitted_takes_exactly_its_cells(text: str, cells: int, right: bool, keep_end: bool) -> None:
    shown = fit(text, cells, right=right, keep_end=keep_end)
    assert shown == visible(shown)
    assert width(shown) == cells
    assert width(cut(text, cells, keep_end=keep_end)) <= cells


def test_text_is_cut_by_cells_not_by_characters() -> None:
    assert (width("训练x"), width("e\u0301")) == (5, 1)
    assert cut("训练模型", 5) == "训练…"
    assert cut("训练模型", 4) == "训…"
    assert cut("a/long/path.py:3", 8, keep_end=True) == "…th.py:3"
    assert cut("as it is", 8) == "as it is"
    assert (fit("训", 4), fit("训", 4, right=True), fit("日本語", 4)) == ("训  ", "  训", "日… ")


def test_broken_lines_are_indented_below_their_lead() -> None:
    assert wrapped("a well-known cause of \x1b[1m waits", 16) == ["a well-known", "  cause of", "  \\x1b[1m waits"]
    assert wrapped("one two three", 12, "  ▲ ") == ["  ▲ one two", "    three"]
    assert wrapped("", 12, "  ▲ ") == []
