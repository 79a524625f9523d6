"""The report in a real browser: every control does what it says, and every sum is that of the run
file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import hostiletexts, synthetic
from support.browser import OpenReport, ReportPage

from profd.daemon.analyze.profile import hot_functions, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.store.reader import RunReader


@pytest.fixture(scope="package")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path_factory.mktemp("report") / "run.profd")) as reader:
        yield reader


@pytest.fixture
def report(open_report: OpenReport, reader: RunReader) -> ReportPage:
    return open_report(reader.path)


def function_shares(reader: RunReader, selection: Selection) -> dict[str, tuple[str, str]]:
    """Return function → (self, total), as the table of hot functions writes them."""
    profile = take_profile(reader, selection)
    return {
        row.function: (f"{100 * row.self_share:.1f} %", f"{100 * row.total_share:.1f} %")
        for row in hot_functions(reader, profile)
    }


def shown_shares(report: ReportPage) -> dict[str, tuple[str, str]]:
    return {row[2]: (row[0], row[1]) for row in report.rows("functions")}


def test_flame_graph_and_table_add_up_to_the_run(report: ReportPage, reader: RunReader) -> None:
    assert report.samples == take_profile(reader, MAIN_THREADS).total_samples
    assert report.shown("profd.graph.tree.samples[0]") == report.samples
    assert (
        report.shown(
            "profd.graph.tree.own.reduce((sum, own) => sum + own) - profd.graph.tree.total[0]"
        )
        == 0
    )
    assert shown_shares(report) == function_shares(reader, MAIN_THREADS)


def test_address_that_means_nothing_opens_the_whole_run(report: ReportPage) -> None:
    assert report.shown("document.getElementById('gpu-idle').hidden") is True  # there is no GPU
    for address in (
        "#gpu-idle=1",
        "#t=x",
        "#t=50-60",
        "#process=77&thread=none&tab=none&by=x&phase=y",
        "#%",
    ):
        report.open(address)
        assert report.samples == 2_000


def test_click_zooms_and_keys_lead_back(report: ReportPage) -> None:
    report.page.mouse.click(*report.place_of("train_epoch:61"))
    assert report.zoomed() == "train_epoch:61"
    assert "train_epoch:58" not in report.labels()
    assert report.page.locator("#panel h3").inner_text() == "train_epoch"
    report.page.mouse.click(*report.place_of("Conv2d.forward:548"))
    report.page.keyboard.press("Backspace")
    assert report.zoomed() == "train_epoch:61"
    report.page.keyboard.press("Escape")
    assert "train_epoch:58" in report.labels()


def test_panel_opens_with_the_users_lines_that_take_most_and_shows_those_of_the_selected_function(
    report: ReportPage,
) -> None:
    rows = report.cells("#panel tbody tr")
    assert rows[0] == ["40.0 %", "197 ms", "train.py:58", "for images, labels in loader:"]
    assert [row[0] for row in rows] == sorted(
        (row[0] for row in rows), key=lambda text: -float(text.split()[0])
    )
    assert sum(float(row[0].split()[0]) for row in rows) == pytest.approx(100, abs=0.5)
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    rows = report.cells("#panel tbody tr:not(.gap)")
    assert ["", "20.0 %", "63", "loss.backward()"] in rows
    assert ["4.0 %", "4.0 %", "65", "running_loss += loss.item()"] in rows


def test_search_tells_the_share_that_it_matches(report: ReportPage) -> None:
    report.page.keyboard.press("/")
    report.page.keyboard.type("resnet.*forward|CROSS")
    assert report.shown("document.getElementById('found').textContent") == "26.0 % matched"
    names = {label.partition(":")[0] for label in report.matched()}
    assert names == {
        "ResNet.forward",
        "ResNet._forward_impl",
        "CrossEntropyLoss.forward",
        "cross_entropy",
    }
    report.page.keyboard.type("(")
    assert report.shown("document.getElementById('found').textContent") == "no regular expression"
    report.page.keyboard.press("Escape")
    assert report.shown("document.getElementById('query').value") == ""


def test_frames_stand_for_lines_or_functions_and_grow_from_the_leaves(
    report: ReportPage, reader: RunReader
) -> None:
    assert report.labels().count("train_epoch:61") == 1
    report.page.select_option("#by", "function")
    assert "train_epoch" in report.labels()
    assert "train_epoch:61" not in report.labels()
    report.page.click("#inverted")
    leaves = report.shown(
        "Object.fromEntries(profd.graph.tree.childrenOf(0)"
        ".map((node) => [profd.graph.label(node), profd.graph.tree.samples[node]]))"
    )
    profile = take_profile(reader, MAIN_THREADS)
    assert leaves == {
        row.function: row.self_samples for row in hot_functions(reader, profile) if row.self_samples
    }
    assert "inverted=1" in report.address


def test_colors_go_by_phase_or_module(report: ReportPage) -> None:
    colors = "{ paper: [255, 255, 255], mixed: [0, 0, 0], accent: '#ff0000' }"
    expression = (
        f"profd.graph.boxes.all.slice(1).map((box) => String(profd.graph.fillOf(box, {colors})))"
    )
    by_phase = set(report.shown(expression))
    report.page.select_option("#coloring", "module")
    by_module = set(report.shown(expression))
    assert "255,0,0" in by_module
    assert "255,0,0" not in by_phase
    assert "230,159,0" in by_phase  # data wait, in the user's own line


def test_phase_of_the_legend_keeps_only_its_samples(report: ReportPage, reader: RunReader) -> None:
    report.page.click("#legend button:has-text('backward')")
    selection = Selection(main_threads=True, phase="backward")
    assert report.samples == take_profile(reader, selection).total_samples == 400
    assert shown_shares(report) == function_shares(reader, selection)
    report.page.click("#legend button:has-text('backward')")
    assert report.samples == 2_000


def test_header_sorts_its_table(report: ReportPage) -> None:
    def column(at: int) -> list[str]:
        return [row[at] for row in report.rows("functions")]

    assert column(0)[0] == "40.0 %"
    report.page.click("#view-functions th:has-text('total') button")
    assert column(1)[:3] == ["100.0 %"] * 3
    report.page.click("#view-functions th:has-text('function') button")
    assert column(2)[:2] == sorted(column(2), key=str.lower)[:2]
    assert (
        report.page.get_attribute("#view-functions th:has-text('function')", "aria-sort")
        == "ascending"
    )


def test_row_of_a_function_leads_into_the_graph_and_that_of_an_event_to_its_time(
    report: ReportPage,
) -> None:
    report.page.click("#view-functions button:has-text('_engine_run_backward')")
    assert report.selected() == "_engine_run_backward:865"
    assert report.page.locator("#panel h3").inner_text() == "_engine_run_backward"
    report.open()
    report.page.click("[role=tab][data-view=events]")
    report.page.click("#view-events button:has-text('started')")
    assert report.address == "#t=0-5&tab=events"
    assert report.samples == 500


def test_processes_are_a_tree_with_their_counters(report: ReportPage) -> None:
    report.page.click("[role=tab][data-view=processes]")
    rows = report.rows("processes")
    assert [row[:3] for row in rows] == [
        ["main", "4242", "0.600"],
        ["worker 1", "4243", "0.970"],
        ["worker 2", "4244", "0.970"],
    ]
    assert rows[0][6] == "train_epoch train.py:58"
    assert rows[1][6] == "elastic_deform augment.py:12"


def test_how_a_process_ended_is_said_as_everywhere_else(
    open_report: OpenReport, tmp_path: Path
) -> None:
    path = synthetic.write_run(tmp_path / "a.profd", seconds=4, exit_code=None, exit_signal=9)
    report = open_report(path)
    report.page.click("[role=tab][data-view=processes]")
    ends = [cell for row in report.rows("processes") for cell in row if ", " in cell]
    assert ends[:2] == ["0:04, was ended by SIGKILL", "0:04, ended with 0"]


def test_keyboard_alone_moves_zooms_and_selects(report: ReportPage) -> None:
    report.page.focus("#timeline")
    report.page.keyboard.press("ArrowRight")
    assert report.address == "#t=0-2"
    report.page.keyboard.press("ArrowRight")
    assert report.address == "#t=0.5-2.5"
    report.page.keyboard.press("Shift+ArrowRight")
    assert report.address == "#t=0.5-3"
    report.page.keyboard.press("Escape")
    assert report.address == ""
    report.page.focus("[role=tab][aria-selected=true]")
    report.page.keyboard.press("ArrowRight")
    assert report.address == "#tab=lines"
    assert report.rows("lines")[0][3] == "threading.py:331"
    report.page.focus("#flame")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        report.page.keyboard.press(key)
    assert report.selected() == "train_epoch:61"
    assert "train_epoch" in report.shown("document.getElementById('spoken').textContent")
    report.page.keyboard.press("Enter")
    assert report.zoomed() == "train_epoch:61"
    report.page.keyboard.press("ArrowUp")
    assert report.selected() == "main:90"


def test_hostile_names_are_shown_and_never_run(open_report: OpenReport, tmp_path: Path) -> None:
    report = open_report(hostiletexts.write_run(tmp_path / "run.profd"), "#process=all&thread=all")
    assert report.samples == 200
    assert any(hostiletexts.MARKUP in label for label in report.labels())
    assert not set("".join(report.labels())) & set("\u202e\u2066\x1b\x00")
    report.page.mouse.click(*report.place_of("__proto__"))
    for view in ("functions", "lines", "processes", "events", "about", "operators"):
        report.page.click(f"[role=tab][data-view={view}]")
        report.check_harmless()
    report.page.click("#view-operators button:has-text('by shape')")
    (operator,) = report.rows("operators")
    assert hostiletexts.MARKUP in operator[0]
    assert hostiletexts.WIDE in operator[-1]
