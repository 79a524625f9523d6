from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.style import Style
from support.present import there

from profd.daemon.analyze.phases import PHASES
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.plaintext import visible, width
from profd.daemon.units import clock
from profd.tui.cells import axis, cut_name, cut_path, slice_of, slice_run, sparkline, wrap_runs
from profd.tui.colors import PhaseLook, phase_looks
from profd.tui.columns import Ruler

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
def test_of_a_path_both_ends_are_kept_then_the_last_as_of_a_qualified_name(
    cells: int, shown: str
) -> None:
    assert cut_path("torch/utils/data/dataloader.py:1275", cells) == shown
    assert cut_name("_MultiProcessingDataLoaderIter._next_data", 20) == "…aderIter._next_data"
    assert cut_name("_engine_run_backward", 10) == "_engine_r…"


@given(TEXT, some.integers(0, 30))
def test_paths_and_names_take_no_more_than_their_cells(text: str, cells: int) -> None:
    assert width(cut_path(text, cells)) <= cells
    assert width(cut_name(text, cells)) <= cells


NAMES = [phase.name for phase in PHASES]
MANY = phase_looks("truecolor")
FEW = phase_looks("standard")
NONE = phase_looks(None)


@some.composite
def mixtures(draw: some.DrawFn) -> dict[str, float]:
    weights = draw(some.lists(some.integers(1, 1000), min_size=1, max_size=len(NAMES)))
    return {name: weight / sum(weights) for name, weight in zip(NAMES, weights, strict=False)}


def slices(mixture: dict[str, float], rows: int) -> list[list[tuple[str, int]]]:
    return [slice_of(mixture, row, rows) for row in range(rows)]


@given(mixtures(), some.integers(2, 8))
def test_slices_fill_every_row_and_keep_the_shares(mixture: dict[str, float], rows: int) -> None:
    found = slices(mixture, rows)
    assert [sum(eighths for _, eighths in row) for row in found] == [8] * rows
    for name, share in mixture.items():
        drawn = sum(eighths for row in found for phase, eighths in row if phase == name)
        assert abs(drawn / (8 * rows) - share) <= 1 / (8 * rows) + 1e-9


def test_slices_are_stacked_from_the_bottom_and_a_single_row_has_the_largest_alone() -> None:
    mixture = {"data wait": 0.75, "forward": 0.25}
    assert slices(mixture, 2) == [[("data wait", 4), ("forward", 4)], [("data wait", 8)]]
    assert slices({"data wait": 0.4, "forward": 0.6}, 1) == [[("forward", 8)]]
    assert slices({}, 3) == [[], [], []]


def test_two_phases_in_a_cell_are_two_colors_where_there_are_many() -> None:
    cell = slice_run([("data wait", 6), ("forward", 2)], MANY)
    assert cell == ("▆", Style(color="#e69f00", bgcolor="#0072b2"))


@pytest.mark.parametrize("looks", [FEW, NONE])
def test_with_few_colors_or_none_a_cell_has_the_letter_of_the_largest(
    looks: dict[str, PhaseLook],
) -> None:
    assert slice_run([("data wait", 3), ("forward", 5)], looks)[0] == "F"


@pytest.mark.parametrize("name", NAMES)
def test_every_phase_has_its_letter_in_an_ink_that_can_be_read(name: str) -> None:
    look = MANY[name]
    ink, ground = (there(color).get_truecolor() for color in (look.cell.color, look.cell.bgcolor))
    assert max(abs(a - b) for a, b in zip(ink, ground, strict=True)) >= 60
    assert NONE[name].letter == look.letter == slice_run([(name, 8)], MANY)[0]


def test_sparklines_have_gaps_where_nothing_is_known() -> None:
    assert sparkline([0.0, None, 0.5, 1.0, 2.0], 1.0) == "▁ ▄██"
    assert sparkline([0.0, 0.0], 0.0) == "▁▁"


@pytest.mark.parametrize("column_s", [0.125, 0.5, 4, 64, 4096])
@pytest.mark.parametrize("columns", [1, 8, 53, 140])
def test_times_stand_at_the_columns_they_name(column_s: float, columns: int) -> None:
    ruler = Ruler(1_795_176_123 * SECOND_NS, int(column_s * SECOND_NS), columns)
    text = axis(ruler, columns)
    minute = axis(Ruler(1_795_176_000 * SECOND_NS, SECOND_NS, 60), 60)
    assert [label[-2:] for label in minute.split()] == ["00", "15", "30", "45"]
    assert len(text) <= columns
    if column_s < 4:
        for label in text.split():
            at_ns = ruler.from_ns + text.index(label) * ruler.column_ns
            assert clock(int(at_ns)) <= label <= clock(int(at_ns + ruler.column_ns))


def texts(*words: str, cells: int, most: int = 99, indent: int = 0) -> list[str]:
    lines = wrap_runs(words, cells, most=most, indent=indent)
    return ["".join(text for text, _ in line) for line in lines]


def test_a_line_ends_at_a_blank_and_the_next_is_indented_and_a_word_of_two_styles_is_not_broken() -> (
    None
):
    assert texts(" ▲ SLOW  ", "it waits", cells=20) == [" ▲ SLOW  it waits"]
    assert texts("it waits 40 % for", " its data", cells=10, indent=2) == [
        "it waits",
        "  40 % for",
        "  its data",
    ]
    assert texts("名前 の長い", cells=6) == ["名前", "の長い"]
    for cells in (0, 1, 3):  # a word that is too long is left whole
        assert "incomprehensible" in " ".join(
            texts("an incomprehensible word", cells=cells, indent=3)
        )
    assert texts("it waits for its data", cells=8, most=2) == ["it waits", "for its data"]
    lines = wrap_runs(["at most", (" 1", "bright"), ".7x"], 8, most=2)
    assert [[text for text, _ in line] for line in lines] == [["at", " most"], ["1", ".7x"]]
    assert lines[1][0] == ("1", "bright")


@given(some.lists(some.text("ab 名", max_size=12), max_size=6), some.integers(8, 30))
def test_no_word_is_lost_and_no_line_too_long(words: list[str], cells: int) -> None:
    lines = texts(*words, cells=cells, indent=3)
    assert " ".join(lines).split() == "".join(words).split()
    longest = max((width(word) for word in "".join(words).split()), default=0)
    assert all(width(line) <= max(cells, longest + 3) for line in lines)
