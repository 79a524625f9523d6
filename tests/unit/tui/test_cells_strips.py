from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.style import Style

from profd.daemon.analyze.phases import PHASES
from profd.daemon.clock import SECOND_NS
from profd.daemon.units import clock
from profd.tui.bins import Ruler
from profd.tui.cells import axis, slice_run, slices, sparkline
from profd.tui.colors import PhaseLook, phase_look
from profd.tui.snapshot import PhaseShare

NAMES = [phase.name for phase in PHASES]
MANY = {name: phase_look(name, "truecolor", is_monochrome=False) for name in NAMES}
FEW = {name: phase_look(name, "standard", is_monochrome=False) for name in NAMES}
NONE = {name: phase_look(name, None, is_monochrome=True) for name in NAMES}


@some.composite
def mixtures(draw: some.DrawFn) -> list[PhaseShare]:
    weights = draw(some.lists(some.integers(1, 1000), min_size=1, max_size=len(NAMES)))
    return [PhaseShare(name, weight / sum(weights)) for name, weight in zip(NAMES, weights, strict=False)]


@given(mixtures(), some.integers(2, 8))
def test_slices_fill_every_row_and_keep_the_shares(mixture: list[PhaseShare], rows: int) -> None:
    found = slices(mixture, rows)

    assert [sum(eighths for _, eighths in row) for row in found] == [8] * rows
    for part in mixture:
        drawn = sum(eighths for row in found for phase, eighths in row if phase == part.phase)
        assert abs(drawn / (8 * rows) - part.share) <= 1 / (8 * rows) + 1e-9


def test_slices_are_stacked_from_the_bottom() -> None:
    mixture = [PhaseShare("data wait", 0.75), PhaseShare("forward", 0.25)]

    assert slices(mixture, 2) == [[("data wait", 4), ("forward", 4)], [("data wait", 8)]]


def test_a_single_row_has_the_largest_phase_alone() -> None:
    mixture = [PhaseShare("data wait", 0.4), PhaseShare("forward", 0.6)]

    assert slices(mixture, 1) == [[("forward", 8)]]
    assert slices([], 3) == [[], [], []]


def test_two_phases_in_a_cell_are_two_colors_where_there_are_many() -> None:
    cell = slice_run([("data wait", 6), ("forward", 2)], MANY, Style())

    assert cell.text == "▆"
    assert cell.style.color is not None
    assert cell.style.bgcolor is not None
    assert cell.style.color.name == "#e69f00"
    assert cell.style.bgcolor.name == "#0072b2"


@pytest.mark.parametrize("looks", [FEW, NONE])
def test_with_few_colors_or_none_a_cell_has_the_letter_of_the_largest(looks: dict[str, PhaseLook]) -> None:
    assert slice_run([("data wait", 3), ("forward", 5)], looks, Style()).text == "F"


@pytest.mark.parametrize("name", NAMES)
def test_every_phase_has_its_letter_in_an_ink_that_can_be_read(name: str) -> None:
    look = MANY[name]
    assert look.cell.color is not None
    assert look.cell.bgcolor is not None
    ink, ground = look.cell.color.get_truecolor(), look.cell.bgcolor.get_truecolor()
    assert max(abs(a - b) for a, b in zip(ink, ground, strict=True)) >= 60
    assert NONE[name].letter == look.letter == slice_run([(name, 8)], MANY, Style()).text


def test_sparklines_have_gaps_where_nothing_is_known() -> None:
    assert sparkline([0.0, None, 0.5, 1.0, 2.0], 1.0) == "▁ ▄██"
    assert sparkline([0.0, 0.0], 0.0) == "▁▁"


@pytest.mark.parametrize("column_s", [0.125, 0.5, 4, 64, 4096])
@pytest.mark.parametrize("columns", [1, 8, 53, 140])
def test_times_stand_at_the_columns_they_name(column_s: float, columns: int) -> None:
    ruler = Ruler(1_795_176_123 * SECOND_NS, int(column_s * SECOND_NS), columns)

    text = axis(ruler, columns)

    assert len(text) <= columns
    if column_s < 4:
        for label in text.split():
            at_ns = ruler.from_ns + text.index(label) * ruler.column_ns
            assert clock(int(at_ns)) <= label <= clock(int(at_ns + ruler.column_ns))


def test_of_a_long_strip_every_label_is_a_round_time() -> None:
    ruler = Ruler(1_795_176_000 * SECOND_NS, SECOND_NS, 60)

    assert [label[-2:] for label in axis(ruler, 60).split()] == ["00", "15", "30", "45"]
