from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.style import Style

from profd.daemon.render.plaintext import visible, width
from profd.tui.cells import Run, cut_name, cut_path, fit_runs

TEXT = some.text().map(visible)


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (40, "torch/utils/data/dataloader.py:1275"),
        (30, "torch/…/dataloader.py:1275"),
        (20, "…dataloader.py:1275"),
        (8, "…py:1275"),
        (1, "…"),
        (0, ""),
    ],
)
def test_of_a_path_both_ends_are_kept_then_the_last(cells: int, shown: str) -> None:
    assert cut_path("torch/utils/data/dataloader.py:1275", cells) == shown


def test_of_a_qualified_name_the_end_is_kept() -> None:
    assert cut_name("_MultiProcessingDataLoaderIter._next_data", 20) == "…aderIter._next_data"
    assert cut_name("_engine_run_backward", 10) == "_engine_r…"


@given(TEXT, some.integers(0, 30))
def test_paths_and_names_take_no_more_than_their_cells(text: str, cells: int) -> None:
    assert width(cut_path(text, cells)) <= cells
    assert width(cut_name(text, cells)) <= cells


@given(some.lists(TEXT, max_size=4), some.integers(0, 30), some.booleans())
def test_runs_are_fitted_together(texts: list[str], cells: int, right: bool) -> None:
    segments = fit_runs([Run(text, Style()) for text in texts], cells, right=right)

    assert sum(width(segment.text) for segment in segments) == cells
