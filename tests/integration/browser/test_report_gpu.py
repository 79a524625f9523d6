"""The report of a run with a GPU, or without one, in a real browser: its charts and the button for idle time."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import OpenReport
from support.gappedrun import DEVICE, UTILIZATION, write_gapped_run
from support.synthetic import write_run

from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import mean_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader


@pytest.fixture(scope="module")
def gapped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gapped_run(tmp_path_factory.mktemp("gapped") / "run.profd")


def test_a_run_without_a_gpu_has_no_such_button(open_report: OpenReport, tmp_path: Path) -> None:
    page = open_report(write_run(tmp_path / "a.profd"), "#gpu-idle=1")
    assert page.shown("document.getElementById('gpu-idle').hidden") is True
    assert page.samples == 2000


@pytest.mark.parametrize("span", [(0, 900), (95, 150), (601, 602)])
def test_a_chart_has_the_mean_of_the_summary(open_report: OpenReport, gapped_run: Path, span: tuple[int, int]) -> None:
    """The page has each value with the time over which it holds; thinned, it is true to a step of the chart."""
    with RunReader(gapped_run) as reader:
        from_ns, to_ns = (reader.info.started_ns + at_s * SECOND_NS for at_s in span)
        utilization = mean_of_series(reader, UTILIZATION, None, Selection(from_ns, to_ns), DEVICE)
    page = open_report(gapped_run)
    shown = page.shown(f"profd.timeline.charts[0].meanIn({{ fromMs: {span[0]}e3, toMs: {span[1]}e3 }})")
    assert shown == pytest.approx(utilization, rel=0.001 if span[0] == 0 else 0.1)
