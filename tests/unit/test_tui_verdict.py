"""The verdict in every room: its number and its line can always be read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import synthetic
from cases import HEALTHY, IMPORT, write_case
from synthetic import STARTED_NS
from theater import play

from profd.daemon.clock import SECOND_NS
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.verdict import VerdictLine

SAID = (
    "▲ INPUT-BOUND the main thread waits 40 % for its data (train.py:58); both workers are 100 % busy: "
    "2 more bring at most 1.9\N{MULTIPLICATION SIGN} 5 why"
)


@pytest.mark.parametrize(("size", "lines"), [((80, 24), 2), ((120, 36), 2), ((200, 60), 1)])
async def test_all_of_it_is_shown(tmp_path: Path, size: tuple[int, int], lines: int) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd", seconds=40), size=size) as theater:
        await theater.until_text(VerdictLine, "why")
        assert theater.widget(VerdictLine).size.height == lines
        assert theater.text(VerdictLine).split() == SAID.split()


async def test_where_there_is_one_line_it_has_the_number_and_the_place(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd", seconds=40), size=(80, 15)) as theater:
        await theater.until_text(VerdictLine, "INPUT-BOUND")
        assert theater.widget(VerdictLine).size.height == 1
        assert "waits 40 % for its data (train.py:58)" in theater.text(VerdictLine)


async def test_it_keeps_its_lines_when_it_gets_shorter(tmp_path: Path) -> None:
    async with play(synthetic.write_run(tmp_path / "a.profd", seconds=40), size=(100, 36)) as theater:
        await theater.until_text(VerdictLine, "why")
        line = theater.widget(VerdictLine)
        assert line.size.height == 2
        tabs = theater.widget(TabLine).region.y
        assert line.snapshot is not None
        line.show(msgspec.structs.replace(line.snapshot, findings=()))
        await theater.pilot.pause()
        assert "INPUT-BOUND" not in theater.text(VerdictLine)
        assert theater.widget(TabLine).region.y == tabs
        await theater.pilot.resize_terminal(200, 60)
        await theater.pilot.pause()
        assert line.size.height == 1


async def test_a_range_that_startup_takes_much_of_is_not_called_healthy(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 40, *[HEALTHY] * 60, seconds=100)
    async with play(path) as theater:
        await theater.until_text(VerdictLine, "startup and import")
        said = theater.text(VerdictLine)
        assert "40 % of this time is startup and import; of the rest" in said
        assert "healthy" not in said
        theater.dashboard.choose_range(STARTED_NS + 50 * SECOND_NS, STARTED_NS + 90 * SECOND_NS)
        await theater.until_text(VerdictLine, "healthy")
