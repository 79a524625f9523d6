"""The address of the report in a real browser: it holds all that is selected, so a colleague can be sent a link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.browser import OpenReport, ReportPage


def seen(report: ReportPage) -> dict[str, Any]:
    """Return all that a reader sees of a selection."""
    return {
        "zoomed": report.zoomed(),
        "selected": report.selected(),
        "labels": report.labels(),
        "samples": report.samples,
        "basis": report.shown("document.getElementById('basis').textContent"),
        "panel": report.shown("document.getElementById('panel').textContent"),
        "tab": report.shown("document.querySelector('[role=tab][aria-selected=true]').dataset.view"),
        "query": report.shown("document.getElementById('query').value"),
    }


def test_a_link_shows_a_colleague_what_its_sender_saw(
    report: ReportPage, open_report: OpenReport, ranked_run: Path
) -> None:
    report.open("#t=4-12&rank=1&tab=lines")
    report.page.fill("#query", "wait")
    report.page.click("#on-cpu")
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    report.page.keyboard.press("Tab")
    report.page.focus("#flame")
    report.page.keyboard.press("ArrowDown")
    assert report.selected() != report.zoomed() == "train_epoch:63"
    other = open_report(ranked_run, str(report.shown("location.hash")))
    assert seen(other) == seen(report)


def test_a_selected_caller_of_the_zoomed_frame_comes_back(report: ReportPage) -> None:
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    report.page.focus("#flame")
    report.page.keyboard.press("ArrowUp")
    before = seen(report)
    assert (before["zoomed"], before["selected"]) == ("train_epoch:63", "main:90")
    address = str(report.shown("location.hash"))
    report.open("")
    report.open(address)
    assert seen(report) == before


def test_another_tree_has_other_frames(report: ReportPage) -> None:
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    assert "frame=" in report.address
    report.page.select_option("#by", "function")
    assert report.address == "#by=function"


def test_an_address_without_a_frame_shows_all(report: ReportPage) -> None:
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    report.page.evaluate("location.hash = 't=4-12'")
    report.wait_for("profd.selection.fromMs === 4000")
    assert report.zoomed().startswith("all")
    assert report.selected().startswith("all")


def test_a_frame_that_is_none_does_no_harm(report: ReportPage) -> None:
    for frame in ["x", "zzzz.1-1-1", "0-99-99", "__proto__-0-0", "0.1.0.1-9-9e9", "%00-1-1", "-1-1"]:
        report.open(f"#frame={frame}")
        assert report.samples == 4_000
        assert report.labels()[0].startswith("all")
