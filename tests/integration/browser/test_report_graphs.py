"""What the report's graph shows beside the merged tree: order of time, callers and callees, and
imports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import rankrun, synthetic
from support.browser import OpenReport, ReportPage
from support.synthetic import MAIN_TID, STARTED_NS, main_process, recording, write_records
from support.training_stacks import BACKWARD, DATA_WAIT, LIBRARY, TRAIN

from profd.daemon.clock import SECOND_NS
from profd.daemon.render import report as report_module
from profd.daemon.store.records import Frame, RunEnded

IMPORT = (
    Frame("<module>", TRAIN, 1),
    Frame("_find_and_load", "<frozen importlib._bootstrap>", 1176),
    Frame("<module>", LIBRARY + "torch/__init__.py", 12),
)


def run_of(path: Path, *spans: tuple[tuple[Frame, ...], int]) -> Path:
    """Write a run whose main thread goes through stacks, each for so many milliseconds."""
    length_ns = sum(length_ms for _, length_ms in spans) * SECOND_NS // 1000
    thread = (MAIN_TID, "MainThread", True, spans)
    found = recording(main_process().identity, STARTED_NS, (thread,), duration_ns=length_ns)
    ended = RunEnded(STARTED_NS + length_ns, "target-exited", 0)
    return write_records(path, [main_process(), found, ended])


def boxes(report: ReportPage) -> list[dict[str, Any]]:
    """Return the boxes of the graph: label, row, and from where to where as shares of the width."""
    return list(
        report.shown(
            "profd.graph.boxes.all.map(({ node, row, x, width }) => ({ label: "
            "profd.graph.label(node), row, from: x / profd.graph.canvas.width, "
            "to: (x + width) / profd.graph.canvas.width }))"
        )
    )


def test_frames_in_order_of_time_lie_where_they_ran(
    open_report: OpenReport, tmp_path: Path
) -> None:
    path = run_of(tmp_path / "a.profd", (DATA_WAIT, 4000), (BACKWARD, 2000), (DATA_WAIT, 2000))
    report = open_report(path)
    report.page.select_option("#graph", label="in order of time")
    found = boxes(report)
    assert found[0]["label"] == "main · 4242 · MainThread"
    ran = [box for box in found if box["label"].startswith("train_epoch")]
    ran.sort(key=lambda box: float(box["from"]))
    lines = ["train_epoch:58", "train_epoch:63", "train_epoch:58"]
    assert [box["label"] for box in ran] == lines
    assert [box["to"] for box in ran] == pytest.approx([0.5, 0.75, 1.0], abs=0.01)
    assert [box["from"] for box in ran] == pytest.approx([0.0, 0.5, 0.75], abs=0.01)
    assert [box["label"] for box in found].count("main:90") == 1  # goes on all the time
    report.page.focus("#flame")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        report.page.keyboard.press(key)
    assert report.zoomed() == "train_epoch:63"
    assert "2.00 s" in report.page.inner_text("#panel")
    address = report.address
    report.open("")
    report.open(address)
    assert report.zoomed() == "train_epoch:63"


def test_time_that_nobody_saw_is_a_gap_in_the_order_of_time(
    open_report: OpenReport, tmp_path: Path
) -> None:
    report = open_report(
        run_of(tmp_path / "a.profd", (DATA_WAIT, 4000), (BACKWARD, 4000)),
        "#graph=time&phase=backward",
    )
    box = next(box for box in boxes(report) if box["label"] == "<module>:96")
    assert (box["from"], box["to"]) == pytest.approx((0.5, 1.0), abs=0.01)


def test_a_sandwich_has_callers_above_and_callees_below_with_the_shares_of_the_tables(
    report: ReportPage,
) -> None:
    report.page.click("#view-functions button:has-text('_MultiProcessingDataLoaderIter._get_data')")
    report.page.click("#panel button:has-text('callers and callees')")
    rows = {box["label"]: box["row"] for box in boxes(report)}
    center = rows["_MultiProcessingDataLoaderIter._get_data · 50.0 %"]
    assert rows["_MultiProcessingDataLoaderIter._next_data:1488"] == center - 1
    assert rows["_MultiProcessingDataLoaderIter._try_get_data:1275"] == center + 1
    assert min(rows.values()) == rows["<module>:96"] == 0
    assert max(rows.values()) == rows["Condition.wait:331"]
    assert "50.0 %" in report.page.inner_text("#panel")
    report.page.mouse.click(*report.place_of("train_epoch:58"))
    assert report.labels()[0] == "train_epoch · 100.0 %"
    below = {box["label"] for box in boxes(report) if box["row"] == 3}
    assert below == {"_BaseDataLoaderIter.__next__:732", "Tensor.backward:630"}
    address = report.address
    report.open("")
    report.open(address)
    assert report.labels()[0] == "train_epoch · 100.0 %"
    report.page.focus("#flame")
    report.page.keyboard.press("Escape")
    assert report.labels()[0] == "all · 4,000 samples"


def test_a_recursion_counts_once_in_a_sandwich(open_report: OpenReport, tmp_path: Path) -> None:
    walk = tuple(Frame("walk", TRAIN, line) for line in (10, 11, 11))
    other = (Frame("main", TRAIN, 5), Frame("read", TRAIN, 7))
    report = open_report(
        run_of(tmp_path / "a.profd", ((Frame("main", TRAIN, 4), *walk), 3000), (other, 1000))
    )
    report.page.select_option("#by", "function")
    report.page.click("#view-functions button:has-text('walk')")
    report.page.focus("#flame")
    report.page.keyboard.press("s")
    labels = {(box["label"], box["row"]) for box in boxes(report)}
    assert labels == {("main", 0), ("walk · 75.0 %", 1), ("walk", 2), ("walk", 3)}


def test_a_line_with_several_functions_is_one_of_your_lines(
    open_report: OpenReport, tmp_path: Path
) -> None:
    outer = (Frame("main", TRAIN, 4), Frame("total", TRAIN, 10))
    path = run_of(
        tmp_path / "a.profd", (outer, 1000), ((*outer, Frame("total.<genexpr>", TRAIN, 10)), 3000)
    )
    rows = open_report(path).cells("#panel tbody tr")
    assert [row[:2] for row in rows] == [["100.0 %", "train.py:10"]]


def test_imports_are_hidden_until_asked_for_and_count_in_every_share(
    open_report: OpenReport, tmp_path: Path
) -> None:
    report = open_report(run_of(tmp_path / "a.profd", (IMPORT, 2000), (BACKWARD, 6000)))
    backward = ["75.0 %", "75.0 %", "_engine_run_backward"]
    assert not any("_find_and_load" in label for label in report.labels())
    assert report.rows("functions")[0][:3] == backward
    assert "_find_and_load" not in {row[2] for row in report.rows("functions")}
    assert "imports hidden: 25.0 %" in report.page.inner_text("#basis")
    assert report.samples == 800
    report.page.click("#imports")
    assert any("_find_and_load" in label for label in report.labels())
    assert report.rows("functions")[0][:3] == backward
    assert report.address == "#imports=1"
    report.open("#phase=startup, import")
    assert any("_find_and_load" in label for label in report.labels())
    report.open("#t=0-1")  # nothing else is there
    assert any("_find_and_load" in label for label in report.labels())


def test_imports_are_shown_if_they_are_a_finding(
    open_report: OpenReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_of(tmp_path / "a.profd", (IMPORT, 2000), (BACKWARD, 6000))
    monkeypatch.setattr(report_module, "shows_imports", lambda findings: True)
    report = open_report(path)
    assert any("_find_and_load" in label for label in report.labels())
    report.page.click("#imports")
    assert report.address == "#imports=0"
    assert not any("_find_and_load" in label for label in report.labels())


def test_wheel_with_ctrl_zooms_by_a_frame_and_double_click_shows_all(report: ReportPage) -> None:
    report.page.mouse.move(*report.place_of("train_epoch:63"))
    report.page.keyboard.down("Control")
    zoomed = []
    for turn in (-100, -100, -100, 100):
        report.page.mouse.wheel(0, turn)
        zoomed.append(report.zoomed())
        report.page.mouse.move(*report.place_of("train_epoch:63"))
    report.page.keyboard.up("Control")
    assert zoomed == ["<module>:96", "main:90", "train_epoch:63", "main:90"]
    report.page.mouse.dblclick(*report.place_of("train_epoch:63"))
    assert report.zoomed().startswith("all")


def test_escape_goes_back_from_wherever_the_focus_is(report: ReportPage) -> None:
    report.open("#t=2-6&query=wait")
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    report.page.focus("#tab-lines")
    left = []
    for _ in range(3):
        report.page.keyboard.press("Escape")
        left.append(report.address)
    assert left[0].startswith("#t=2-6&query=wait")
    assert report.zoomed().startswith("all")
    assert left[1].startswith("#t=2-6")
    assert "query" not in left[1]
    assert "t=" not in left[2]


def test_search_finds_lines_functions_processes_and_events(report: ReportPage) -> None:
    def found(view: str, query: str) -> list[list[str]]:
        report.page.click(f"#tab-{view}")
        report.page.fill("#query", query)
        return report.rows(view)

    assert {row[2] for row in found("functions", "_try_get|engine")} == {
        "_MultiProcessingDataLoaderIter._try_get_data",
        "_engine_run_backward",
    }
    assert [row[4] for row in found("lines", r"loss\.back")] == ["loss.backward()"]
    assert [row[1] for row in found("processes", str(rankrun.WORKERS[1].pid))] == ["5101"]
    assert {row[0] for row in found("memory", "rank 0")} == {"rank 0 · 5000"}
    assert [row[0] for row in found("operators", "addmm")] == ["aten::addmm"]
    report.page.fill("#query", "loss.backward")
    assert report.cells("#panel tbody tr")[0][-1] == "loss.backward()"
    assert len(report.cells("#panel tbody tr")) == 1
    assert found("functions", "nothing has this name") == []
    assert "Nothing here matches the search." in report.page.inner_text("#view-functions")


def test_search_finds_events(open_report: OpenReport, tmp_path: Path) -> None:
    report = open_report(synthetic.write_run(tmp_path / "run.profd", seconds=4), "#tab=events")
    before = report.rows("events")
    report.page.fill("#query", "^started$")
    assert [row[1] for row in report.rows("events")] == ["started"]
    assert len(before) > 1


def test_phases_and_lines_have_their_part_of_a_step_while_all_is_selected(
    report: ReportPage,
) -> None:
    legend = "[...document.querySelectorAll('#legend button')].map((one) => one.innerText)"
    steps = [text.split("\n")[3] for text in report.shown(legend)]
    assert sum(int(text.removesuffix(" ms")) for text in steps) == 1000 / rankrun.STEPS_PER_S
    assert [row[1] for row in report.cells("#panel tbody tr")] == steps
    report.open("#t=2-6")
    assert "ms" not in str(report.shown(legend))
    assert len(report.cells("#panel tbody tr")[0]) == 3
