"""The findings view: the list, the evidence, and the way to the proof."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from textual.widgets import Input
from theater import Theater, play

from profd.daemon.store.writer import RunWriter
from profd.tui.reading.exhibits import FlameGrown
from profd.tui.widgets.findings import EvidencePane, FindingTable, quantity
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.verdict import VerdictLine


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=40)


async def open_findings(theater: Theater) -> FindingTable:
    await theater.until_text(VerdictLine, "INPUT-BOUND")
    await theater.press("5")
    return theater.widget(FindingTable)


def evidence(theater: Theater) -> str:
    return theater.app.export_screenshot().replace("&#160;", " ")


async def test_the_strongest_is_first_and_its_evidence_beside_it(ended: Path) -> None:
    async with play(ended) as theater:
        table = await open_findings(theater)
        assert "5 Findings ②" in theater.text(TabLine)
        first = table.rows[0]
        assert first.label == "input-bound"
        assert "▲" in theater.text(FindingTable).splitlines()[1]
        assert theater.widget(EvidencePane).finding == first
        shown = evidence(theater)
        assert "train.py:58" in shown
        assert "for images, labels in loader:" in shown
        assert "as many steps at most" in shown


async def test_the_evidence_is_that_of_the_row_under_the_cursor(ended: Path) -> None:
    async with play(ended) as theater:
        table = await open_findings(theater)
        await theater.press("down", "down")
        assert table.current is not None
        assert theater.widget(EvidencePane).finding == table.current == table.rows[1]


async def test_enter_goes_to_the_range_and_the_stacks(ended: Path) -> None:
    async with play(ended) as theater:
        table = await open_findings(theater)
        wanted = table.rows[0].evidence
        await theater.press("enter")
        assert theater.widget(TabLine).tab == "flame"
        taken = await theater.snapshot(lambda snapshot: snapshot.view.chosen is not None)
        assert (taken.from_ns, taken.to_ns) == (wanted.from_ns, wanted.to_ns)
        assert theater.dashboard.query_one(Input).value == "train.py:58"
        if theater.widget(FlameView).walk.tree is None:
            await theater.until(FlameGrown)
        assert "% of the time has “train.py:58” in its stack" in theater.text(FlameView)


async def test_a_filter_keeps_the_findings_with_a_word(ended: Path) -> None:
    async with play(ended) as theater:
        table = await open_findings(theater)
        await theater.press("slash", *"zzz")
        assert table.rows == []
        assert "Nothing here has" in theater.text(FindingTable)


async def test_a_run_without_findings_says_so(tmp_path: Path) -> None:
    RunWriter(tmp_path / "a.profd", synthetic.run_started(), synthetic.describe).close()
    async with play(tmp_path / "a.profd") as theater:
        await theater.press("5", "enter")
        assert "Nothing was found yet." in theater.text(FindingTable)
        assert theater.widget(TabLine).tab == "findings"


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(0.4, "share", "40 %"), (2e9, "bytes", "2.0 GB"), (1.5, "cores", "1.5 cores"), (12000, "times", "1.2e+04 times")],
)
def test_quantities_have_their_units(value: float, unit: str, said: str) -> None:
    assert quantity(value, unit) == said
