"""The report of a run with a GPU, in a real browser: what Python did while the GPU was idle."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import OpenReport, ReportPage
from support.gappedrun import DEVICE, UTILIZATION, write_gapped_run
from support.gpurun import SECONDS, waits, write_gpu_run
from support.synthetic import write_run

from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.analyze.series import mean_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.exports.formats import collapsed_lines
from profd.daemon.store.reader import RunReader


@pytest.fixture(scope="module")
def gapped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gapped_run(tmp_path_factory.mktemp("gapped") / "run.profd")


def exported(run: Path) -> int:
    """Return the samples that the export of the same selection has."""
    with RunReader(run) as reader:
        selection = Selection(main_threads=True, when=(Condition("gpu-idle"),))
        return sum(int(line.rpartition(" ")[2]) for line in collapsed_lines(reader, selection))


def phases_shown(page: ReportPage) -> list[str]:
    shown = page.shown("[...profd.counts.byPhase()].map((time, at) => (time ? profd.run.phases[at].name : null))")
    return [name for name in shown if name]


def test_the_button_leaves_the_time_for_which_the_gpu_was_idle(open_report: OpenReport, tmp_path: Path) -> None:
    run = write_gpu_run(tmp_path / "a.profd", {"0": waits}, {})
    page = open_report(run)
    assert phases_shown(page) == ["data wait", "backward"]
    page.page.click("#gpu-idle")
    assert phases_shown(page) == ["data wait"]
    assert page.samples == exported(run) == SECONDS * 100
    assert "gpu-idle=1" in page.address
    assert "GPU idle (below 5.0 %)" in page.shown("document.getElementById('basis').textContent")


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
