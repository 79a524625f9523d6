"""What is said where there are no samples: of which time, and why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import synthetic
from support.dashboard import open_dashboard
from support.synthetic import MAIN, MAIN_TID, STARTED_NS

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import records
from profd.tui.feed import OperatorsRead, OutputDrawn
from profd.tui.view import Range
from profd.tui.widgets.findings import FindingTable
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import VerdictLine
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.tabs import TabLine


def write_gap(path: Path, ended_s: int) -> Path:
    """Write a run of 30 s whose training process lives for ``ended_s`` and is sampled for 2 s."""
    main = (MAIN_TID, "MainThread", True, synthetic.STEP * 4)
    found: list[records.Record] = [
        synthetic.main_process(),
        synthetic.recording(MAIN, STARTED_NS, (main,), duration_ns=2 * SECOND_NS),
        records.ProcessEnded(MAIN, STARTED_NS + ended_s * SECOND_NS, exit_code=0),
        records.RunEnded(STARTED_NS + 30 * SECOND_NS, "target-exited", 0),
    ]
    return synthetic.write_records(path, found)


@pytest.mark.parametrize(("ended_s", "why"), [(30, "nothing was recorded then"), (5, "no training process was there")])
async def test_a_range_without_samples_says_of_when_and_why(tmp_path: Path, ended_s: int, why: str) -> None:
    gap = Range(STARTED_NS + 10 * SECOND_NS, STARTED_NS + 20 * SECOND_NS)
    times = "12:00:10–12:00:20"  # noqa: RUF001
    async with open_dashboard(write_gap(tmp_path / "a.profd", ended_s)) as opened:
        opened.dashboard.choose_range(gap.from_ns, gap.to_ns)
        await opened.snapshot(lambda snapshot: snapshot.view.chosen == gap)
        assert f"No samples of main threads between {times}: {why}." in opened.text(HotTable)
        assert f"No samples of a main thread between {times}: {why}." in opened.text(VerdictLine)
        await opened.press("2")
        await opened.until_text(FlameView, f"No samples of main threads between {times}: {why}.")


async def test_a_view_that_has_nothing_says_so(tmp_path: Path) -> None:
    attached = msgspec.structs.replace(synthetic.run_started(), mode="attached")
    synthetic.write_records(tmp_path / "a.profd", (), attached)
    async with open_dashboard(tmp_path / "a.profd") as opened:
        await opened.press("4")
        await opened.until(OperatorsRead)
        assert "w takes one" in opened.text(OperatorTable)
        await opened.press("5", "enter")
        assert "Nothing was found yet." in opened.text(FindingTable)
        assert opened.widget(TabLine).tab == "findings"
        await opened.press("7")
        await opened.until(OutputDrawn)
        assert "it writes to a terminal of its own" in opened.text(OutputPane)
