"""The dashboard in every room, with any names, with many colors, few and none."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import hostile
import pytest
import synthetic
from exhibition import write_exhibition
from textual.widget import Widget
from theater import Theater, play

from profd.tui.drawing.colors import DARK, LIGHT
from profd.tui.widgets.events import EventTable
from profd.tui.widgets.findings import FindingTable
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.keys import KeyLine
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline
from profd.tui.widgets.tree import ProcessTable
from profd.tui.widgets.verdict import VerdictLine

SIZES = [(20, 5), (30, 9), (50, 14), (80, 24), (120, 36), (200, 60)]
WIDGETS: tuple[type[Widget], ...] = (
    Header,
    VerdictLine,
    Timeline,
    TabLine,
    HotTable,
    FlameView,
    ProcessTable,
    OperatorTable,
    FindingTable,
    EventTable,
    OutputPane,
    KeyLine,
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("live", [True, False])
async def test_every_tab_fits_every_size(tmp_path: Path, size: tuple[int, int], live: bool) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd", live=live), size=size) as theater:
        for key in (
            "down",
            "o",
            "t",
            "z",
            "2",
            "down",
            "down",
            "3",
            "4",
            "5",
            "6",
            "7",
            "question_mark",
            "escape",
            "1",
        ):
            await theater.press(key)
            assert_lines_fit(theater)
        assert "train.py" in theater.text(Header)
        assert "10.0 %" in theater.text(HotTable)  # of all threads' samples, as t was pressed


async def test_shrinking_and_growing_keeps_the_dashboard_whole(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd")) as theater:
        for size in reversed(SIZES):
            await theater.pilot.resize_terminal(*size)
            await theater.pilot.pause()
            assert_lines_fit(theater)
        await theater.pilot.resize_terminal(120, 36)
        await theater.snapshot(lambda snapshot: len(snapshot.timeline.lanes[0].cells) == 120 - 10 - 44 - 2)
        assert "he main thread waits" in theater.text(VerdictLine)


async def test_small_rooms_give_their_lines_to_the_table(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd"), size=(20, 5)) as theater:
        shown = [widget.id or type(widget).__name__ for widget in theater.dashboard.children if widget.display]
        assert theater.widget(HotTable).size.height == 3
    assert shown[:3] == ["Header", "TabLine", "panes"]


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_names_are_spelled_out_and_never_obeyed(tmp_path: Path, size: tuple[int, int]) -> None:
    async with play(hostile.write_run(tmp_path / "a.profd"), size=size) as theater:
        for key in ("1", "2", "3"):
            await theater.press(key)
            assert_lines_fit(theater)
        await theater.press("1")
        for kind in WIDGETS:
            shown = theater.text(kind).replace("\n", "")
            assert all(unicodedata.category(character) not in {"Cc", "Cf", "Cs"} for character in shown), kind
        if size[0] >= 120:
            assert "<img src=x" in theater.text(HotTable)
            assert "\\x1b[31m" in theater.text(Header) + theater.text(VerdictLine) + theater.text(HotTable)


async def test_names_are_no_markup(tmp_path: Path) -> None:
    path = tmp_path / "[bold red]x[nonsense.profd"
    async with play(synthetic.write_run(path)) as theater:
        theater.app.notify("[bold]x[/] [nonsense", markup=False)
        await theater.pilot.pause()
        assert theater.notices() == ["[bold]x[/] [nonsense"]


@pytest.mark.parametrize(
    ("background", "theme"), [("15;0", DARK), ("0;15", LIGHT), ("0;default;15", LIGHT), ("", DARK)]
)
async def test_the_theme_suits_the_terminals_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: str, theme: object
) -> None:
    monkeypatch.setenv("COLORFGBG", background)
    async with play(synthetic.write_run(tmp_path / "a.profd")) as theater:
        assert theater.app.current_theme is theme


@pytest.mark.parametrize("theme", ["profd-light", "textual-dark", "textual-light", "nord"])
async def test_every_theme_can_be_chosen(tmp_path: Path, theme: str) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd")) as theater:
        theater.app.theme = theme
        await theater.press("down")
        assert_lines_fit(theater)


async def test_without_color_letters_carry_the_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with play(synthetic.write_run(tmp_path / "a.profd", seconds=40)) as theater:
        lanes = theater.text(Timeline).splitlines()[:4]
        strips = [line[10:74] for line in lanes]
        await theater.press("down")
        table = theater.widget(HotTable)
        reversed_rows = [
            y for y in range(4) if any(segment.style and segment.style.reverse for segment in table.render_line(y))
        ]

    assert all(set(strip) <= set("DFBPOS") for strip in strips)
    assert "D" in strips[3]
    assert {"D", "F", "B"} <= set("".join(strips))
    assert reversed_rows == [1]


def assert_lines_fit(theater: Theater) -> None:
    """Check that no line of any widget is wider or narrower than its widget."""
    for kind in WIDGETS:
        widget = theater.widget(kind)
        for y in range(widget.size.height):
            assert widget.render_line(y).cell_length == widget.size.width, (kind, y)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_nothing_beside_the_timeline_is_cut(tmp_path: Path, size: tuple[int, int]) -> None:
    async with play(write_exhibition(tmp_path / "a.profd"), size=size) as theater:
        said = theater.text(Timeline)
        assert "294 W" in said
        assert "● note" in said
        assert "…" not in said
