"""The address of the report in a real browser: it holds all that is selected, so a colleague can be sent a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rankrun
from browser import ReportPage, launched_chromium

from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.requires("playwright")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched_chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = rankrun.write_run(tmp_path_factory.mktemp("address") / "run.profd")
    with RunReader(path) as reader:
        write_report(reader, path.with_suffix(".html"))
    return path.with_suffix(".html")


@pytest.fixture
def report(chromium: Browser, file: Path) -> Iterator[ReportPage]:
    opened = ReportPage(chromium.new_page(viewport={"width": 1400, "height": 1000}), file)
    opened.open()
    yield opened
    opened.page.close()
    assert opened.complaints == []


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


def test_a_link_shows_a_colleague_what_its_sender_saw(chromium: Browser, report: ReportPage, file: Path) -> None:
    report.open("#t=4-12&rank=1&tab=lines")
    report.page.fill("#query", "wait")
    report.page.click("#on-cpu")
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    report.page.keyboard.press("Tab")
    report.page.focus("#flame")
    report.page.keyboard.press("ArrowDown")
    assert report.selected() != report.zoomed() == "train_epoch:63"
    other = ReportPage(chromium.new_page(viewport={"width": 1400, "height": 1000}), file)
    other.open(str(report.shown("location.hash")))
    assert seen(other) == seen(report)
    other.page.close()


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


@pytest.mark.parametrize("frame", ["x", "zzzz.1-1-1", "0-99-99", "__proto__-0-0", "0.1.0.1-9-9e9", "%00-1-1", "-1-1"])
def test_a_frame_that_is_none_does_no_harm(report: ReportPage, frame: str) -> None:
    report.open(f"#frame={frame}")
    assert report.samples == 4_000
    assert report.labels()[0].startswith("all")
