"""The findings view: the list, the evidence, and the way to the proof."""

from __future__ import annotations

from support.dashboard import OpenDashboard
from textual.widgets import Input

from profd.tui.feed import FlameGrown
from profd.tui.widgets.findings import EvidencePane, FindingTable
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import VerdictLine
from profd.tui.widgets.tabs import TabLine


async def open_findings(opened: OpenDashboard) -> FindingTable:
    await opened.until_text(VerdictLine, "INPUT-BOUND")
    await opened.press("5")
    return opened.widget(FindingTable)


async def test_the_strongest_is_first_and_its_evidence_beside_it(opened: OpenDashboard) -> None:
    table = await open_findings(opened)
    assert "5 Findings ②" in opened.text(TabLine)
    first = table.rows[0]
    assert first.label == "input-bound"
    assert "▲" in opened.text(FindingTable).splitlines()[1]
    assert opened.widget(EvidencePane).finding == first
    shown = opened.app.export_screenshot().replace("&#160;", " ")
    assert "train.py:58" in shown
    assert "for images, labels in loader:" in shown
    assert "as many steps at most" in shown
    await opened.press("down", "down")
    assert table.current is not None
    assert opened.widget(EvidencePane).finding == table.current == table.rows[1]


async def test_a_filter_keeps_those_with_a_word_and_enter_goes_to_the_range_and_the_stacks(
    opened: OpenDashboard,
) -> None:
    table = await open_findings(opened)
    await opened.press("slash", *"zzz")
    assert table.rows == []
    assert "Nothing here has" in opened.text(FindingTable)
    await opened.press("escape")
    wanted = table.rows[0].evidence
    await opened.press("enter")
    assert opened.widget(TabLine).tab == "flame"
    taken = await opened.snapshot(lambda snapshot: snapshot.view.chosen is not None)
    assert (taken.from_ns, taken.to_ns) == (wanted.from_ns, wanted.to_ns)
    assert opened.dashboard.query_one(Input).value == "train.py:58"
    if opened.widget(FlameView).cursor.tree is None:
        await opened.until(FlameGrown)
    assert "% of the time has “train.py:58” in its stack" in opened.text(FlameView)
