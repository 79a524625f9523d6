"""What of the report shows no samples: findings, operators of torch windows, memory, charts, ranks,
and its numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from support import hostiletexts, rankrun, synthetic
from support.browser import OpenReport, ReportPage
from support.folders import DATA
from support.gappedrun import DEVICE, UTILIZATION, write_gapped_run
from support.noderuns import Job

from profd.daemon.analyze.nodes import open_job, read_folder
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.series import total_of_series
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.catalog import find
from profd.daemon.findings.finding import Evidence, Finding
from profd.daemon.render import report as report_module
from profd.daemon.render.cards import proof_address
from profd.daemon.render.htmlpage import PAGE
from profd.daemon.render.report import write_report
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext


def titles(report: ReportPage, view: str) -> list[str]:
    found = report.shown(
        f"[...document.querySelectorAll('#view-{view} th')].map((cell) => cell.textContent)"
    )
    return [str(title) for title in found]


def test_a_card_leads_to_its_proof(
    open_report: OpenReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_finding(reader: RunReader, *_: object) -> Summary:
        selection = Selection(main_threads=True, rank=1, phase="data wait")
        from_ns = synthetic.STARTED_NS + 4 * SECOND_NS
        evidence = Evidence((), from_ns, from_ns + 6 * SECOND_NS, selection)
        found = Finding(
            "starved",
            "warning",
            "input-bound",
            hostiletexts.MARKUP,
            "why",
            "do",
            2.0,
            evidence,
            "starved",
        )
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
            assert (
                report.samples == take_profile(reader, finding.evidence.selection).total_samples
            ), finding.title


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
    assert [row[-1] for row in report.rows("operators")][1:] == [
        "[[8, 3, 32, 32]]",
        "[[8, 64, 16, 16]]",
        "[[8, 512]]",
    ]
    assert "GPU 0 was idle 25 %" in report.page.inner_text("#view-operators")
    report.page.click("#view-operators button:has-text('select its time')")
    assert report.address == "#t=12-12.25&tab=operators"


def test_paper_is_light_and_leaves_controls_out(report: ReportPage) -> None:
    report.open("#gpu-idle=1")
    report.page.emulate_media(media="print", color_scheme="dark")
    report.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert report.shown("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 250)"
    assert not report.page.is_visible("#rank")
    assert report.page.is_visible("#gpu-idle")  # the page still names the selection
    assert report.page.is_visible("#basis")
    assert report.page.is_visible("#flame")


def test_memory_is_shown_for_the_selection(report: ReportPage) -> None:
    report.open("#t=5-15&tab=memory")
    rows = {(row[0], row[1]): row[3:7] for row in report.rows("memory")}
    assert rows["rank 0 · 5000", "RSS"] == ["1.0 GB", "1.0 GB", "1.0 GB", "+30 MB"]
    assert rows["rank 1 · 5001", "RSS"] == ["1.0 GB", "1.0 GB", "1.0 GB", "+0 B"]
    assert rows["rank 0 · 5000", "on GPU 0"] == ["2.0 GB", "2.0 GB", "2.0 GB", "+0 B"]
    assert report.shown("document.querySelectorAll('#view-memory svg polyline').length") == 3


def test_growth_stands_beside_the_memory_that_grows_and_what_is_not_known_is_left_out(
    open_report: OpenReport, tmp_path: Path
) -> None:
    report = open_report(synthetic.write_run(tmp_path / "run.profd", seconds=90), "#tab=memory")
    growth = {row[0]: row[-1] for row in report.rows("memory")}
    assert growth["main · 4242"].startswith("grows by 1.0 MB/s")
    assert growth["worker 1 · 4243"] == "steady"
    assert report.shown("profd.timeline.charts.map((chart) => chart.title)") == [
        "CPU, cores",
        "memory, RSS",
    ]
    report.page.click("#tab-operators")
    assert "profd run --torch-window arms them" in report.page.inner_text("#view-operators")


def test_the_timeline_has_the_pace_of_the_steps(report: ReportPage) -> None:
    chart = "profd.timeline.charts.find((chart) => chart.title === 'steps')"
    paces = [pace for pace in report.shown(f"[...{chart}.grid]") if pace is not None]
    assert paces
    assert set(paces) == {rankrun.STEPS_PER_S}
    report.open("")
    assert report.shown(f"{chart}.subtitle") == "rank 0"


def test_a_chart_has_the_mean_of_the_summary(open_report: OpenReport, tmp_path: Path) -> None:
    """The page has each value with the time over which it holds.

    Thinned, it is true to a step of the chart.
    """
    page = open_report(write_gapped_run(tmp_path / "run.profd"))
    with RunReader(tmp_path / "run.profd") as reader:
        for from_s, to_s in ((0, 900), (95, 150), (601, 602)):
            from_ns, to_ns = (reader.info.started_ns + at_s * SECOND_NS for at_s in (from_s, to_s))
            utilization = total_of_series(
                reader, UTILIZATION, None, Selection(from_ns, to_ns), DEVICE
            ).mean
            shown = page.shown(
                f"profd.timeline.charts[0].meanIn({{ fromMs: {from_s}e3, toMs: {to_s}e3 }})"
            )
            assert shown == pytest.approx(utilization, rel=0.1 if from_s else 0.001), (from_s, to_s)


def test_ranks_of_the_table_are_picked_and_processes_named_by_them(
    open_report: OpenReport, tmp_path: Path
) -> None:
    job = Job()
    for rank in range(3):
        job.write(
            tmp_path / f"{rank}.profd",
            rank,
            own_share=0.9 if rank == 1 else 0.4,
            ahead_ns=rank * 700_000_003,
        )
    with open_job(read_folder(tmp_path).choose(None)) as reader:
        write_report(reader, tmp_path / "job.html")
    report = open_report(tmp_path / "job.html")
    page = report.page
    rows = page.locator(".ranks tbody tr")

    assert rows.count() == 3
    assert rows.nth(1).inner_text().split()[:3] == ["▲", "1", "node1"]
    merged, alone = report.samples, []
    for rank in range(3):
        rows.nth(rank).get_by_role("link").click()
        report.wait_for(f"document.querySelector('#rank').value === '{rank}'")
        assert f"rank {rank}" in page.locator("#basis").inner_text()
        alone.append(report.samples)
    assert sum(alone) == merged
    page.get_by_role("link", name="all ranks").click()
    report.wait_for("document.querySelector('#rank').value === 'all'")
    assert report.samples == merged

    titles = page.locator("#process option").all_inner_texts()

    assert [title.partition(" · ")[0] for title in titles if title.startswith("rank")] == [
        "rank 0 node0", "rank 1 node1", "rank 2 node2",
    ]  # fmt: skip
    assert page.locator(".nodes tbody tr").nth(2).inner_text().split()[:1] == ["node2"]


NAMES = {
    "number": "significant",
    "plural": "counted",
    "percent": "percent",
    "size": "bytes",
    "step_time": "stepTime",
    "duration": "duration",
    "quantity": "quantity",
    "difference": "change",
    "signed_percent": "signedPercent",
}
"""What the functions of ``daemon.units`` are called in the script."""


def test_numbers_are_written_as_everywhere_else(chromium: BrowserContext) -> None:
    rules = json.loads((DATA / "units.json").read_text())
    cases = [(name, given, text) for name, pairs in rules.items() for given, text in pairs]
    calls = [
        f"{NAMES[name]}({', '.join(json.dumps(word) for word in words_of(name, given))})"
        for name, given, _ in cases
    ]
    page = chromium.new_page()
    shown = page.evaluate(
        f"() => {{ {(PAGE / 'text.js').read_text()}; return [{', '.join(calls)}]; }}"
    )
    page.close()
    assert dict(zip(calls, shown, strict=True)) == {
        call: text for call, (_, _, text) in zip(calls, cases, strict=True)
    }


def words_of(name: str, given: object) -> list[object]:
    """Return what a function of the script is given: a share as a part and its whole."""
    if isinstance(given, list):
        return given
    return [given, 1] if name == "percent" else [given]
