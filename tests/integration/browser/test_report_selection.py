"""What is selected in the report, in a real browser, has the samples that `profd export` selects by
the same.

That is so of filters, brushed ranges, frames and searches, and of the address, which holds all of
it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support import rankrun
from support.browser import OpenReport, ReportPage

from profd.cli.main import run_command_line

Exported = pytest.CaptureFixture[str]


def exported(run: Path, capsys: Exported, *options: str, through: str = "") -> int:
    """Return the samples that the command exports, of stacks that match a pattern."""
    capsys.readouterr()
    assert run_command_line(["export", str(run), "--format", "collapsed", *options]) == 0
    lines = [line.rpartition(" ") for line in capsys.readouterr().out.splitlines()]
    return sum(int(samples) for stack, _, samples in lines if re.search(through, stack))


def brushed(report: ReportPage, from_x: int, to_x: int) -> list[str]:
    """Drag over the timeline, and return the range that the address has then as options of a
    command.
    """
    place = report.page.locator("#timeline").bounding_box()
    assert place
    report.page.mouse.move(place["x"] + from_x, place["y"] + 20)
    report.page.mouse.down()
    report.page.mouse.move(place["x"] + to_x, place["y"] + 24, steps=3)
    report.page.mouse.up()
    found = re.match(r"#t=([\d.]+)-([\d.]+)", report.address)
    assert found
    dragged_s = sorted(
        report.shown(f"[{from_x}, {to_x}].map((x) => profd.timeline.toMs(x) / 1000)")
    )
    assert [float(found[1]), float(found[2])] == pytest.approx(dragged_s, abs=0.011)
    return ["--from", found[1], "--to", found[2]]


def test_a_brushed_range_has_the_samples_of_its_export(
    report: ReportPage, ranked_run: Path, capsys: Exported
) -> None:
    for from_x, to_x in ((620, 300), (130, 1_390)):
        report.open()
        options = brushed(report, from_x, to_x)
        assert 0 < report.samples == exported(ranked_run, capsys, *options)
        report.page.click("#gpu-idle")
        assert report.samples == exported(ranked_run, capsys, *options, "--gpu-idle")
    report.open()
    brushed(report, 300, 620)
    place = report.page.locator("#timeline").bounding_box()
    assert place
    report.page.mouse.dblclick(place["x"] + 800, place["y"] + 20)
    assert (report.samples, report.address) == (4_000, "")


def test_a_frame_has_the_samples_of_the_stacks_through_it(
    report: ReportPage, ranked_run: Path, capsys: Exported
) -> None:
    options = brushed(report, 300, 900)
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    expected = exported(ranked_run, capsys, *options, through=r"train_epoch \([^;]*:63\)")
    assert expected
    assert report.shown("profd.graph.tree.samples[profd.graph.zoomed]") == expected
    facts = report.shown("document.querySelector('#panel dl').textContent")
    assert f"in this frame{100 * expected / report.samples:.1f} % {expected:,} samples" in facts


def test_every_control_is_reached_and_used_by_keyboard_alone(
    report: ReportPage, ranked_run: Path, capsys: Exported
) -> None:
    def go_to(name: str) -> None:
        for _ in range(60):
            if report.shown("document.activeElement.id") == name:
                return
            report.page.keyboard.press("Tab")
        pytest.fail(f"{name} is not reached by Tab")

    go_to("timeline")
    report.page.keyboard.press("ArrowRight")
    go_to("rank")
    report.page.keyboard.press("ArrowDown")
    report.page.keyboard.press("ArrowDown")
    go_to("process")
    go_to("thread")
    go_to("phase")
    report.page.keyboard.type("B")
    go_to("by")
    go_to("coloring")
    go_to("on-cpu")
    report.page.keyboard.press("Space")
    options = ("--to", "2", "--rank", "1", "--phase", "backward", "--when", "on-cpu")
    assert report.samples == exported(ranked_run, capsys, *options) > 0
    go_to("gpu-idle")
    go_to("inverted")
    report.page.keyboard.press("Enter")
    assert report.shown("document.getElementById('inverted').ariaPressed") == "true"
    go_to("query")
    report.page.keyboard.type("engine")
    assert report.matched()
    go_to("reset")
    report.page.keyboard.press("Enter")
    assert "t=" not in report.address
    go_to("flame")
    report.page.keyboard.press("ArrowDown")
    report.page.keyboard.press("Enter")
    assert report.zoomed() == "_engine_run_backward:865"
    go_to("tab-functions")
    report.page.keyboard.press("ArrowLeft")
    assert report.shown("document.activeElement.id") == "tab-about"


Controls = dict[str, str]
"""What to choose in the list of an id; an empty choice presses the button of that id."""


WORKER_1 = str(rankrun.WORKERS[1].pid)
CASES: dict[str, tuple[Controls, tuple[str, ...], int]] = {
    "phase": ({"phase": "D data wait"}, ("--phase", "data wait"), 2_000),
    "process": (
        {"process": f"worker 1 · {WORKER_1}", "thread": "all threads"}, ("--process", WORKER_1), 2_000,
    ),
    "all threads": ({"process": "all processes", "thread": "all threads"}, ("--threads",), 12_000),
    "thread": (
        {"process": "all processes", "thread": "Thread-1 (_pin_memory_loop)"},
        ("--thread", "Thread-1 (_pin_memory_loop)"), 4_000,
    ),
    "on CPU of a rank in a phase": (
        {"on-cpu": "", "rank": "rank 1", "phase": "B backward"},
        ("--when", "on-cpu", "--rank", "1", "--phase", "backward"), 500,
    ),
    "on CPU while the GPU idles": (
        {"on-cpu": "", "gpu-idle": ""}, ("--when", "on-cpu", "--gpu-idle"), 500,
    ),
}  # fmt: skip


def test_a_filter_selects_what_the_export_selects_and_its_address_brings_it_back_with_a_range(
    report: ReportPage, ranked_run: Path, capsys: Exported
) -> None:
    for name, (controls, options, about) in CASES.items():
        report.open()
        use(report, controls)
        expected = exported(ranked_run, capsys, *options)
        assert expected == pytest.approx(about, rel=0.03), name
        assert report.samples == report.shown("profd.graph.tree.samples[0]") == expected, name
        report.open(f"#{str(report.shown('location.hash')).removeprefix('#')}&t=3.5-9.25")
        assert report.samples == exported(
            ranked_run, capsys, "--from", "3.5", "--to", "9.25", *options
        ), name


def use(report: ReportPage, controls: Controls) -> None:
    for name, choice in controls.items():
        if choice:
            report.page.select_option(f"#{name}", label=choice)
        else:
            report.page.click(f"#{name}")


def test_roles_of_processes_several_of_them_and_threads_that_are_not_main(
    report: ReportPage,
) -> None:
    report.page.select_option("#process", label="workers")
    assert report.samples == 4_000
    report.page.select_option("#process", label="all processes")
    report.page.select_option("#thread", label="other threads")
    assert report.samples == 4_000
    assert {label.partition(":")[0] for label in report.labels()} >= {
        "Thread._bootstrap",
        "_pin_memory_loop",
    }
    assert not {"main", "<module>"} & {label.partition(":")[0] for label in report.labels()}
    report.open("#process=1,3&thread=all")
    assert report.samples == 4_000
    assert (
        report.shown("document.getElementById('process').selectedOptions[0].text") == "2 processes"
    )


def test_the_row_of_filters_says_what_is_selected(report: ReportPage) -> None:
    use(report, {"rank": "rank 0", "phase": "B backward", "on-cpu": "", "gpu-idle": ""})
    basis = report.shown("document.getElementById('basis').textContent")
    assert basis.startswith(
        "main threads · backward · rank 0 · on CPU · GPU idle (below 5.0 %) · whole run"
    )
    assert report.page.get_attribute("#on-cpu", "aria-pressed") == "true"


def seen(report: ReportPage) -> dict[str, Any]:
    """Return all that a reader sees of a selection."""
    return {
        "zoomed": report.zoomed(),
        "selected": report.selected(),
        "labels": report.labels(),
        "samples": report.samples,
        "basis": report.shown("document.getElementById('basis').textContent"),
        "panel": report.shown("document.getElementById('panel').textContent"),
        "tab": report.shown(
            "document.querySelector('[role=tab][aria-selected=true]').dataset.view"
        ),
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


def test_an_address_with_no_frame_or_none_that_there_is_shows_all_as_another_tree_does(
    report: ReportPage,
) -> None:
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    assert "frame=" in report.address
    report.page.evaluate("location.hash = 't=4-12'")
    report.wait_for("profd.selection.fromMs === 4000")
    assert report.zoomed().startswith("all")
    assert report.selected().startswith("all")
    report.page.mouse.click(*report.place_of("train_epoch:63"))
    report.page.select_option("#by", "function")
    assert report.address == "#t=4-12&by=function"
    for frame in [
        "x",
        "0-99-99",
        "__proto__-0-0",
        "%00-1-1",
    ]:
        report.open(f"#frame={frame}")
        assert report.samples == 4_000
        assert report.labels()[0].startswith("all")
