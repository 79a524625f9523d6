"""The dashboard in every room, with any names, with many colors, few and none."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from support import hostiletexts, synthetic
from support.completerun import write_complete_run
from support.dashboard import OpenDashboard, open_dashboard
from textual.widget import Widget

from profd.daemon.analyze.selection import Selection
from profd.tui.app import ProfdApp
from profd.tui.colors import DARK, LIGHT
from profd.tui.widgets.findings import FindingTable
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import Header, VerdictLine
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.processes import EventTable, ProcessTable
from profd.tui.widgets.tabs import KeyLine, TabLine
from profd.tui.widgets.timeline import Timeline

SIZES = [(20, 5), (30, 9), (50, 14), (80, 24), (120, 36), (200, 60)]
KEYS = ("down", "o", "t", "z", "2", "down", "down", "3", "4", "5", "6", "7", "question_mark", "escape", "1")
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


@pytest.mark.dashboard
@pytest.mark.parametrize(("live", "sizes"), [(True, SIZES[::2]), (False, SIZES)])
async def test_every_tab_fits_every_size(tmp_path: Path, live: bool, sizes: list[tuple[int, int]]) -> None:
    run = synthetic.write_run(tmp_path / "a.profd", live=live)
    async with open_dashboard(run, size=sizes[-1]) as opened:
        for size in reversed(sizes):
            await opened.resize(*size)
            assert_lines_fit(opened)
            for key in KEYS:
                await opened.press(key)
                assert_lines_fit(opened)
            assert "train.py" in opened.text(Header)
            if opened.dashboard._view.scope == Selection():  # t goes through them
                assert "10.0 %" in opened.text(HotTable)
        # In a small room the table has the lines.
        shown = [widget.id or type(widget).__name__ for widget in opened.dashboard.children if widget.display]
        assert shown[:3] == ["Header", "TabLine", "panes"]
        assert opened.widget(HotTable).size.height == 3

        await opened.resize(120, 36)
        assert_lines_fit(opened)
        grown = opened.widget(Header).snapshot
        assert grown is not None
        assert grown.view.columns == 120 - 10 - 44 - 2
        assert live or len(grown.timeline.phase_rows[0].cells) == grown.view.columns
        assert "he main thread waits" in opened.text(VerdictLine)


@pytest.mark.dashboard
async def test_hostile_names_are_spelled_out_and_never_obeyed(tmp_path: Path) -> None:
    async with open_dashboard(hostiletexts.write_run(tmp_path / "[bold red]x[nonsense.profd")) as opened:
        for size in SIZES:
            await opened.resize(*size)
            for key in ("1", "2", "3"):
                await opened.press(key)
                assert_lines_fit(opened)
            await opened.press("1")
            for kind in WIDGETS:
                shown = opened.text(kind).replace("\n", "")
                assert all(unicodedata.category(character) not in {"Cc", "Cf", "Cs"} for character in shown), kind
            if size[0] >= 120:
                assert "<img src=x" in opened.text(HotTable)
                assert "\\x1b[31m" in opened.text(Header) + opened.text(VerdictLine) + opened.text(HotTable)
        opened.app.notify("[bold]x[/] [nonsense", markup=False)
        await opened.settle()
        assert opened.notices() == ["[bold]x[/] [nonsense"]


@pytest.mark.parametrize(
    ("background", "theme"), [("15;0", DARK), ("0;15", LIGHT), ("0;default;15", LIGHT), ("", DARK)]
)
def test_the_theme_suits_the_terminals_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: str, theme: object
) -> None:
    monkeypatch.setenv("COLORFGBG", background)
    assert ProfdApp(tmp_path / "a.profd").current_theme is theme


async def test_every_theme_can_be_chosen(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd")) as opened:
        for theme in ("profd-light", "textual-dark", "textual-light", "nord"):
            opened.app.theme = theme
            await opened.press("down")
            assert_lines_fit(opened)


async def test_without_color_letters_carry_the_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd", seconds=40)) as opened:
        rows = opened.text(Timeline).splitlines()[:4]
        strips = [line[10:74] for line in rows]
        await opened.press("down")
        table = opened.widget(HotTable)
        reversed_rows = [
            y for y in range(4) if any(segment.style and segment.style.reverse for segment in table.render_line(y))
        ]

    assert all(set(strip) <= set("DFBPOS") for strip in strips)
    assert "D" in strips[3]
    assert {"D", "F", "B"} <= set("".join(strips))
    assert reversed_rows == [1]


def assert_lines_fit(opened: OpenDashboard) -> None:
    """Check that no line of any widget is wider or narrower than its widget."""
    for kind in WIDGETS:
        widget = opened.widget(kind)
        for y in range(widget.size.height):
            assert widget.render_line(y).cell_length == widget.size.width, (kind, y)


async def test_nothing_beside_the_timeline_is_cut(tmp_path: Path) -> None:
    async with open_dashboard(write_complete_run(tmp_path / "a.profd")) as opened:
        for size in [(80, 24), (120, 36)]:
            await opened.resize(*size)
            said = opened.text(Timeline)
            assert "294 W" in said
            assert "● note" in said
            assert "…" not in said
