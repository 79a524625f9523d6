"""What of the report shows no samples: the cards of findings, operators of torch windows, memory, the pace of steps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import hostiletexts, rankrun, synthetic
from support.browser import OpenReport, ReportPage

from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.catalog import find
from profd.daemon.findings.finding import Evidence, Finding
from profd.daemon.render import report as report_module
from profd.daemon.render.cards import proof_address
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.store.reader import RunReader


def titles(report: ReportPage, view: str) -> list[str]:
    found = report.shown(f"[...document.querySelectorAll('#view-{view} th')].map((cell) => cell.textContent)")
    return [str(title) for title in found]


def test_a_card_leads_to_its_proof(open_report: OpenReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_finding(reader: RunReader) -> Summary:
        selection = Selection(main_threads=True, rank=1, phase="data wait")
        from_ns = synthetic.STARTED_NS + 4 * SECOND_NS
        evidence = Evidence((), from_ns, from_ns + 6 * SECOND_NS, selection)
        found = Finding("starved", "warning", "input-bound", hostiletexts.MARKUP, "why", "do", 2.0, evidence, "starved")
        return msgspec.structs.replace(summarize(reader), findings=(found,))

    monkeypatch.setattr(report_module, "summarize", with_finding)
    report = open_report(rankrun.write_run(tmp_path / "run.profd"))
    assert hostiletexts.MARKUP in report.page.inner_text(".card h2")
    report.page.focus(".card a.proof")
    report.page.keyboard.press("Enter")
    assert report.address == "#t=4.00-10.00&rank=1&phase=data+wait"
    assert report.samples == 300
    assert report.shown("document.getElementById('phase').selectedOptions[0].text") == "D data wait"


def test_each_proof_has_the_samples_of_its_finding(report: ReportPage, ranked_run: Path) -> None:
    with RunReader(ranked_run) as reader:
        findings = [finding for finding in find(reader) if not finding.evidence.selection.when]
        assert findings
        for finding in findings:
            report.open(f"#{proof_address(reader, finding.evidence)}")
            assert report.samples == take_profile(reader, finding.evidence.selection).total_samples, finding.title


def test_operators_of_a_window_stand_by_name_and_by_shape(report: ReportPage) -> None:
    report.open("#tab=operators")
    assert titles(report, "operators") == [
        "Name", "Self CPU", "Self CPU %", "CPU total", "CPU total %", "CPU time avg",
        "Self CUDA ↓", "Self CUDA %", "CUDA total", "CUDA time avg", "CUDA Mem", "Self CUDA Mem", "# of Calls",
    ]  # fmt: skip
    assert report.rows("operators") == [
        ["implicit_gemm", "0.000us", "0.0 %", "0.000us", "0.0 %", "0.000us",
         "15.100ms", "100.0 %", "15.100ms", "1.373ms", "0 B", "0 B", "11"],
        ["aten::conv2d", "4.000ms", "90.9 %", "8.000ms", "181.8 %", "888.889us",
         "15.000ms", "99.3 %", "30.000ms", "3.333ms", "8.00 KB", "4.00 KB", "9"],
        ["aten::addmm", "400.000us", "9.1 %", "800.000us", "18.2 %", "400.000us",
         "100.000us", "0.7 %", "200.000us", "100.000us", "4.00 KB", "2.00 KB", "2"],
    ]  # fmt: skip
    report.page.click("#view-operators button:has-text('by shape')")
    assert [row[-1] for row in report.rows("operators")][1:] == ["[[8, 3, 32, 32]]", "[[8, 64, 16, 16]]", "[[8, 512]]"]
    assert "GPU 0 was idle 25 %" in report.page.inner_text("#view-operators")
    report.page.click("#view-operators button:has-text('select its time')")
    assert report.address == "#t=12-12.25&tab=operators"


def test_paper_is_light_and_leaves_controls_out(report: ReportPage) -> None:
    report.open("#gpu-idle=1")
    report.page.emulate_media(media="print", color_scheme="dark")
    report.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert report.shown("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 250)"
    assert not report.page.is_visible("#rank")
    assert report.page.is_visible("#gpu-idle")  # what is selected still has to be told
    assert report.page.is_visible("#basis")
    assert report.page.is_visible("#flame")


def test_memory_is_told_for_the_selection(report: ReportPage) -> None:
    report.open("#t=5-15&tab=memory")
    rows = {(row[0], row[1]): row[3:8] for row in report.rows("memory")}
    assert rows["rank 0 · 5000", "RSS"] == ["1.0 GB", "1.0 GB", "1.0 GB", "+30 MB", "+180 MB"]
    assert rows["rank 1 · 5001", "RSS"] == ["1.0 GB", "1.0 GB", "1.0 GB", "+0 B", "+0 B"]
    assert rows["rank 0 · 5000", "on GPU 0"] == ["2.0 GB", "2.0 GB", "2.0 GB", "+0 B", "+0 B"]
    assert report.shown("document.querySelectorAll('#view-memory svg polyline').length") == 3


def test_growth_stands_beside_the_memory_that_grows_and_what_is_not_known_is_left_out(
    open_report: OpenReport, tmp_path: Path
) -> None:
    report = open_report(synthetic.write_run(tmp_path / "run.profd", seconds=90), "#tab=memory")
    growth = {row[0]: row[-1] for row in report.rows("memory")}
    assert growth["main · 4242"].startswith("grows by 1.0 MB/s")
    assert growth["worker 1 · 4243"] == "steady"
    assert report.shown("profd.timeline.charts.map((chart) => chart.title)") == ["CPU, cores", "memory, RSS"]
    report.page.click("#tab-operators")
    assert "profd run --torch-window arms them" in report.page.inner_text("#view-operators")


def test_the_timeline_has_the_pace_of_the_steps(report: ReportPage) -> None:
    chart = "profd.timeline.charts.find((chart) => chart.title === 'steps')"
    paces = [pace for pace in report.shown(f"[...{chart}.grid]") if pace is not None]
    assert paces
    assert set(paces) == {rankrun.STEPS_PER_S}
    report.open("")
    assert report.shown(f"{chart}.subtitle") == "rank 0"
