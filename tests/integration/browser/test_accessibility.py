"""Pages for those who read by keyboard or screen reader: axe-core has nothing serious to say of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import OpenReport, ReportPage, axe_script
from support.present import there
from support.stepruns import write_steps
from support.synthetic import STARTED_NS, write_run

from profd.cli.main import run_command_line
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import OutputWritten

pytestmark = pytest.mark.requires("axe-core")
VIEWS = ("functions", "lines", "operators", "processes", "memory", "events", "about")


def faults(report: ReportPage, *rules: str, part: str = "html") -> list[str]:
    """Return what axe-core finds in a part of the page that is serious or critical, with where it
    is; of these rules where some are named.
    """
    report.shown("true")
    if not report.shown("typeof axe === 'object'"):
        report.page.evaluate(there(axe_script()).read_text())
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = report.page.evaluate("([part, options]) => axe.run(part, options)", [part, options])
    return [
        f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def test_every_table_and_graph_of_a_report(report: ReportPage) -> None:
    found: dict[str, list[str]] = {}

    def judge(shown: str, part: str = "html") -> None:
        found[shown] = faults(report, part=part)
        report.page.emulate_media(color_scheme="dark")
        found[f"{shown}, dark"] = faults(report, "color-contrast", part=part)
        report.page.emulate_media(color_scheme="light")

    for view in VIEWS:
        report.page.click(f"#tab-{view}")
        judge(view, f"#view-{view}")
    for address in ("#graph=time", "#graph=sandwich", "#t=2-6&query=wait&gpu-idle=1"):
        report.open(address)
        judge(address)
    report.open("")
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    judge("a frame")
    report.page.set_viewport_size({"width": 390, "height": 800})
    judge("a phone")
    assert not any(found.values()), found


def test_the_end_of_a_target_and_its_output(open_report: OpenReport, tmp_path: Path) -> None:
    said = OutputWritten(STARTED_NS + 4 * SECOND_NS, b"\n".join(b"line " * 99 for _ in range(40)))
    for name, signal in (("crash", 11), ("stopped", 2)):
        path = tmp_path / f"{name}.profd"
        write_run(path, seconds=4, exit_code=None, exit_signal=signal, also=[said])
        report = open_report(path)
        assert report.page.locator(".death").count() == (name == "crash")
        assert faults(report) == [], name


def test_a_comparison(open_report: OpenReport, tmp_path: Path) -> None:
    runs = [write_steps(tmp_path / f"{n}.profd", n, slower=1.0 + 0.2 * n) for n in range(2)]
    page = tmp_path / "diff.html"
    assert run_command_line(["diff", *map(str, runs), "-o", str(page)]) == 0
    report = open_report(page)
    for view in ("functions", "lines", "leaves", "phases", "memory", "gpus", "runs"):
        report.page.click(f"#tab-{view}")
        assert faults(report, part=f"#view-{view}") == [], view
    assert faults(report) == []
