"""The comparison of two runs in a real browser: differential colors, widths, search, tables,
keyboard.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import hostiletexts, readingruns
from support.browser import OpenReport, ReportPage
from support.stepruns import write_steps

from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.compare.diff import take_compared, take_diff
from profd.daemon.render.diffreport import render_diff_report
from profd.daemon.store.reader import RunReader

COLORS = "{ paper: [255, 255, 255], mixed: [200, 200, 200], accent: '#ff0000' }"


def compare(base: Path, new: Path) -> Path:
    file = new.with_suffix(".html")
    with RunReader(base) as first, RunReader(new) as second:
        diff = take_diff(take_compared(first), take_compared(second))
        file.write_text(render_diff_report((first, second), (MAIN_THREADS, MAIN_THREADS), diff))
    return file


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Write the comparison of a run with one that is slower."""
    return compare(
        write_steps(tmp_path / "a.profd", 1), write_steps(tmp_path / "b.profd", 2, slower=1.2)
    )


@pytest.fixture
def report(open_report: OpenReport, page: Path) -> ReportPage:
    return open_report(page)


def fills(report: ReportPage) -> dict[str, list[int]]:
    boxes = (
        "profd.graph.boxes.all.slice(1).map((box) => [profd.graph.label(box.node), "
        f"profd.graph.fillOf(box, {COLORS})])"
    )
    return {str(label): list(fill) for label, fill in report.shown(boxes)}


def test_what_takes_more_is_orange_with_a_plus_and_what_takes_less_blue_with_a_minus(
    open_report: OpenReport, report: ReportPage, tmp_path: Path
) -> None:
    red, _, blue = fills(report)["_engine_run_backward"]
    assert red > blue + 60
    same = fills(report)["Condition.wait"]
    assert max(same) - min(same) == 0
    node = (
        "profd.graph.boxes.all.find((box) => profd.graph.label(box.node) === "
        "'_engine_run_backward').node"
    )
    assert report.shown(f"profd.graph.letterOf({node})") == "+"
    found = open_report(compare(tmp_path / "b.profd", tmp_path / "a.profd"))
    red, _, blue = fills(found)["_engine_run_backward"]
    assert blue > red + 60
    assert found.shown("profd.graph.letterOf(1)") == "−"  # noqa: RUF001  the page's own sign


def test_widths_are_those_of_the_run_that_is_chosen(report: ReportPage) -> None:
    assert report.labels()[0] == "all · 220 ms"
    report.page.select_option("#side", "base")
    assert report.labels()[0] == "all · 200 ms"


def test_a_row_leads_to_its_frame_and_keys_back(report: ReportPage) -> None:
    report.page.click("[role=tab][data-view=leaves]")
    assert report.rows("leaves")[0][5:] == [
        "_engine_run_backward",
        "torch/autograd/graph.py",
        "yes",
    ]
    report.page.click("#view-leaves button:has-text('_engine_run_backward')")
    assert report.zoomed() == "_engine_run_backward"
    assert "of a step" in report.page.inner_text("#panel")
    report.page.focus("#flame")
    report.page.keyboard.press("Escape")
    assert report.zoomed().startswith("all")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        report.page.keyboard.press(key)
    assert "base" in report.shown("document.getElementById('spoken').textContent")


def test_a_link_shows_a_colleague_what_its_sender_saw(
    open_report: OpenReport, page: Path, report: ReportPage
) -> None:
    report.page.select_option("#side", "base")
    report.page.click("[role=tab][data-view=leaves]")
    report.page.click("#view-leaves button:has-text('_engine_run_backward')")
    report.page.keyboard.press("/")
    report.page.keyboard.type("^backward$")
    assert report.rows("leaves") == []
    report.page.focus("#flame")
    report.page.keyboard.press("ArrowUp")
    other = open_report(page, str(report.shown("location.hash")))
    assert (other.zoomed(), other.selected()) == ("_engine_run_backward", "backward")
    assert other.labels()[0] == "all · 200 ms"
    assert other.matched() == report.matched() == ["backward"]
    assert other.page.is_visible("#view-leaves")
    assert other.page.inner_text("#panel") == report.page.inner_text("#panel")
    other.page.evaluate("location.hash = ''")
    other.wait_for("profd.graph.zoomed === 0")
    assert other.labels()[0] == "all · 220 ms"


def test_every_control_is_reached_by_keyboard_alone(report: ReportPage) -> None:
    reached = []
    for _ in range(30):
        report.page.keyboard.press("Tab")
        reached.append(str(report.shown("document.activeElement.id")))
    assert {"side", "query", "flame", "tab-functions"} <= set(reached)
    report.page.focus("#tab-functions")
    report.page.keyboard.press("ArrowLeft")
    assert "1 min 06 s" in report.page.inner_text("#view-runs")
    report.page.focus("#side")
    report.page.keyboard.press("ArrowDown")
    assert report.labels()[0] == "all · 200 ms"


def test_gpus_memory_and_operators_have_their_tables(
    open_report: OpenReport, tmp_path: Path
) -> None:
    slower = readingruns.write_run(tmp_path / "b.profd", 2, idle=0.5, conv_ms=4.0, peak_bytes=2.5e9)
    found = open_report(compare(readingruns.write_run(tmp_path / "a.profd", 1), slower))
    rows = {
        view: {(row[0], row[1]): row[2:] for row in found.rows(view)}
        for view in ("gpus", "memory", "operators")
    }
    assert rows["gpus"]["GPU 0", "idle share"][-1] == "yes"
    assert rows["memory"]["main", "RSS, peak"] == [
        "2.0 GB",
        "2.5 GB",
        "+500 MB",
        "one value a run",
        "yes",
    ]
    assert rows["memory"]["worker", "RSS, peak"][2:] == ["+0 B", "one value a run", "alike"]
    assert rows["operators"]["aten::conv2d", "self CPU"][-1] == "yes"
    assert rows["operators"]["aten::addmm", "self CPU"][-1] == "within unrest"
    found.page.click("[role=tab][data-view=gpus]")
    assert found.page.is_visible("#view-gpus table")


def test_hostile_names_are_shown_and_never_run(open_report: OpenReport, tmp_path: Path) -> None:
    run = hostiletexts.write_run(tmp_path / "a.profd")
    found = open_report(compare(run, run))
    assert any(hostiletexts.MARKUP in label for label in found.labels())
    found.page.mouse.click(*found.place_of("__proto__"))
    for view in ("functions", "lines", "leaves", "phases", "operators", "memory", "gpus", "runs"):
        found.page.click(f"[role=tab][data-view={view}]")
        found.check_harmless()
