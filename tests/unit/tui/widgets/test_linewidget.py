"""What is on the terminal is what the widgets show, though lines that stay as they are are not
drawn again.
"""

from __future__ import annotations

import msgspec
import pytest
from support.dashboard import OpenDashboard
from support.present import there
from textual.geometry import Region
from textual.strip import Strip

from profd.tui.cells import styled
from profd.tui.colors import LIGHT
from profd.tui.series import GPU_POWER_SERIES, GPU_SERIES
from profd.tui.snapshot import Series
from profd.tui.widgets.header import Header, VerdictLine
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.linewidget import LineWidget
from profd.tui.widgets.side import side_of
from profd.tui.widgets.tabs import TabLine

KINDS: tuple[type[LineWidget], ...] = (Header, VerdictLine, TabLine, HotTable)


def drawn(widget: LineWidget) -> list[Strip]:
    return [
        strip.crop(0, widget.size.width)
        for strip in widget.render_lines(Region(0, 0, *widget.size))
    ]


def assert_is_drawn(opened: OpenDashboard) -> None:
    for kind in KINDS:
        widget = opened.widget(kind)
        made = [widget.make_line(y) for y in range(widget.size.height)]
        assert [line.text for line in drawn(widget)] == [line.text for line in made], kind


async def test_what_stays_as_it_is_is_not_drawn_again_and_what_came_and_went_leaves_nothing(
    opened: OpenDashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The verdict takes a line of the table when it comes.
    await opened.until_text(VerdictLine, "why")
    await opened.press("2")
    table, asked, snapshot = (
        opened.widget(HotTable),
        list[Region](),
        there(opened.widget(Header).snapshot),
    )
    before = drawn(table)
    with monkeypatch.context() as noted:
        noted.setattr(table, "refresh", lambda *regions: asked.extend(regions))
        table.show(snapshot)
        assert asked == []
        first, *others = snapshot.functions
        changed = msgspec.structs.replace(first, self_share=first.self_share + 0.001)
        table.show(msgspec.structs.replace(snapshot, functions=(changed, *others)))
        assert [region.y for region in asked] == [1]
    table.show(snapshot)
    await opened.press("down", "down", "o")
    assert drawn(table) != before
    await opened.press("o", "escape")
    assert drawn(table) == before
    await opened.press("3", "2", "end", "slash", "q", "z", "escape")
    assert_is_drawn(opened)
    await opened.press("escape", "home")
    dark = drawn(table)[1]
    opened.app.theme = LIGHT.name
    await opened.settle()
    assert [part.style for part in drawn(table)[1]] != [part.style for part in dark]
    await opened.resize(80, 24)
    assert_is_drawn(opened)


@pytest.mark.parametrize(
    ("cells", "shown"), [(36, "100 % mean  2212 W"), (14, "100 %  2212 W"), (8, "100 %")]
)
def test_beside_a_gpu_are_its_watts_if_there_is_room(cells: int, shown: str) -> None:
    gpu = Series(GPU_SERIES, (0.5,), 1.0, "mean")
    runs = side_of(gpu, Series(GPU_POWER_SERIES, (0.5,), 2212.0, "mean"), cells)
    assert "".join(text for text, _ in styled(runs)) == shown
