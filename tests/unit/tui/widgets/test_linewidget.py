"""What is on the terminal is what the widgets show, though lines that stay as they are are not drawn again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.dashboard import OpenDashboard, open_dashboard
from textual.geometry import Region
from textual.strip import Strip

from profd.tui.colors import LIGHT
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.header import Header, VerdictLine
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.linewidget import LineWidget
from profd.tui.widgets.tabs import TabLine

KINDS: tuple[type[LineWidget], ...] = (Header, VerdictLine, TabLine, HotTable)


def snapshot_of(opened: OpenDashboard) -> Snapshot:
    snapshot = opened.widget(Header).snapshot
    assert snapshot is not None
    return snapshot


def drawn(widget: LineWidget) -> list[Strip]:
    """Return the lines of a widget as the terminal has them."""
    return [strip.crop(0, widget.size.width) for strip in widget.render_lines(Region(0, 0, *widget.size))]


def assert_is_drawn(opened: OpenDashboard) -> None:
    for kind in KINDS:
        widget = opened.widget(kind)
        made = [widget.make_line(y) for y in range(widget.size.height)]
        assert [line.text for line in drawn(widget)] == [line.text for line in made], kind


async def test_what_stays_as_it_is_is_not_drawn_again(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_dashboard(ended) as opened:
        await opened.until_text(VerdictLine, "why")
        await opened.settle()
        table, asked = opened.widget(HotTable), list[Region]()
        monkeypatch.setattr(table, "refresh", lambda *regions: asked.extend(regions))
        table.show(snapshot_of(opened))
        assert asked == []
        first, *others = snapshot_of(opened).functions
        changed = msgspec.structs.replace(first, self_share=first.self_share + 0.001)
        table.show(msgspec.structs.replace(snapshot_of(opened), functions=(changed, *others)))
        assert [region.y for region in asked] == [1]


async def test_a_cursor_that_comes_and_goes_leaves_nothing_behind_nor_does_a_theme(ended: Path) -> None:
    async with open_dashboard(ended) as opened:
        # The verdict takes a line of the table when it comes.
        await opened.until_text(VerdictLine, "why")
        await opened.settle()
        table = opened.widget(HotTable)
        before = drawn(table)
        await opened.press("down", "down", "o")
        assert drawn(table) != before
        await opened.press("o", "escape")
        assert drawn(table) == before
        await opened.press("2", "1", "end", "slash", "q", "z", "escape")
        assert_is_drawn(opened)

        await opened.press("escape", "home")
        dark = drawn(table)[1]
        opened.app.theme = LIGHT.name
        await opened.settle()
        assert [part.style for part in drawn(table)[1]] != [part.style for part in dark]
        await opened.resize(80, 24)
        assert_is_drawn(opened)
