"""The user's lines, which the dashboard opens with: of the loop, of a step, and of the startup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, IMPORT, write_case
from support.present import there
from support.stepruns import write_steps
from support.synthetic import STARTED_NS
from textual.widgets import Input

from profd.daemon.clock import SECOND_NS
from profd.tui.feed import FlameGrown
from profd.tui.widgets.hot import LineTable
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import Timeline


def phases_of(table: LineTable) -> list[str]:
    return [row.phase for row in table.rows]


async def test_startup_is_apart_from_the_loop_and_alone_before_it(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 40, *[HEALTHY] * 60, seconds=100)
    async with open_dashboard(path) as opened:
        table = opened.widget(LineTable)
        assert "startup, import" not in phases_of(table)
        assert sum(row.total_share for row in table.rows) == pytest.approx(1)
        assert "6,000 samples · without startup" in opened.text(TabLine)
        await opened.press("l")
        assert set(phases_of(table)) == {"startup, import"}
        assert sum(row.total_share for row in table.rows) == pytest.approx(1)
        assert "4,000 samples · startup alone" in opened.text(TabLine)
        await opened.press("l")
        assert "startup, import" not in phases_of(table)
        opened.dashboard.choose_range(STARTED_NS, STARTED_NS + 20 * SECOND_NS)
        await opened.snapshot(lambda snapshot: snapshot.view.chosen is not None)
        assert set(phases_of(table)) == {"startup, import"}


async def test_phases_and_lines_have_their_part_of_a_step(tmp_path: Path) -> None:
    async with open_dashboard(write_steps(tmp_path / "a.profd", 1)) as opened:
        lines, legend = opened.text(LineTable), opened.text(Timeline)
        for phase, short, length_ms in (
            ("backward", "bwd", 100),
            ("data wait", "data", 60),
            ("optimizer", "opt", 40),
        ):
            (row,) = (line for line in lines.splitlines() if f" {phase} " in line)
            for pattern, text in ((r"(\S+) ms", row), (rf" {short} +(\S+) ms", legend)):
                found = there(re.search(pattern, text))
                assert float(found[1]) == pytest.approx(length_ms, rel=0.02)
        # Only main threads make steps.
        await opened.press("t")
        await opened.snapshot(lambda snapshot: not snapshot.view.scope.main_threads)
        assert " ms " not in opened.text(LineTable)


async def test_a_few_steps_say_too_little_for_a_part_of_one(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "a.profd", 1, counted_every=140)
    async with open_dashboard(path) as opened:
        opened.dashboard.choose_range(STARTED_NS, STARTED_NS + SECOND_NS)
        await opened.snapshot(lambda snapshot: snapshot.view.chosen is not None)
        assert " ms " not in opened.text(LineTable) + opened.text(Timeline)
        assert "D data" in opened.text(LineTable)


async def test_a_line_has_its_phase_and_enter_opens_the_stacks_through_it(tmp_path: Path) -> None:
    path = synthetic.write_run(tmp_path / "a.profd")
    async with open_dashboard(path, size=(200, 60)) as opened:
        table = opened.widget(LineTable)
        first = table.rows[0]
        assert (first.phase, first.source) == ("data wait", "for images, labels in loader:")
        assert first.total_share == pytest.approx(synthetic.PHASE_SHARES["data wait"])
        assert first.self_share == 0.0
        row = opened.text(LineTable).splitlines()[1]
        for cell in ("40.0 %", "D data wait", "train.py:58", "for images"):
            assert cell in row
        await opened.press("down", "enter")
        await opened.until(FlameGrown)
        assert opened.widget(TabLine).tab == "flame"
        assert opened.dashboard.query_one(Input).value == "train.py:58"


async def test_the_lines_of_workers_are_a_scope_of_their_own(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd")) as opened:
        await opened.press("t")
        await opened.snapshot(lambda snapshot: snapshot.view.scope.role == "worker")
        table = opened.widget(LineTable)
        assert sum(row.total_share for row in table.rows) == pytest.approx(1)
        assert "workers · whole run" in opened.text(TabLine)
        assert "loader" not in opened.text(LineTable)
