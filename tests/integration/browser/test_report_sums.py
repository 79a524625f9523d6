"""Sums of the report are those of `profd export`: of a brushed range, a zoomed frame, a search, and all by keyboard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.browser import ReportPage

from profd.cli.main import run_command_line

Exported = pytest.CaptureFixture[str]


def exported(run: Path, capsys: Exported, *options: str, through: str = "") -> int:
    """Return the samples that the command exports, of stacks that match a pattern."""
    capsys.readouterr()
    assert run_command_line(["export", str(run), "--format", "collapsed", *options]) == 0
    lines = [line.rpartition(" ") for line in capsys.readouterr().out.splitlines()]
    return sum(int(samples) for stack, _, samples in lines if re.search(through, stack))


def brushed(report: ReportPage, from_x: int, to_x: int) -> list[str]:
    """Drag over the timeline, and return the range that the address has then as options of a command."""
    place = report.page.locator("#timeline").bounding_box()
    assert place
    report.page.mouse.move(place["x"] + from_x, place["y"] + 20)
    report.page.mouse.down()
    report.page.mouse.move(place["x"] + to_x, place["y"] + 24, steps=3)
    report.page.mouse.up()
    found = re.match(r"#t=([\d.]+)-([\d.]+)", report.address)
    assert found
    dragged_s = sorted(report.shown(f"[{from_x}, {to_x}].map((x) => profd.timeline.toMs(x) / 1000)"))
    assert [float(found[1]), float(found[2])] == pytest.approx(dragged_s, abs=0.011)
    return ["--from", found[1], "--to", found[2]]


def test_a_brushed_range_has_the_samples_of_its_export(report: ReportPage, ranked_run: Path, capsys: Exported) -> None:
    for from_x, to_x in ((300, 620), (620, 300), (130, 1_390), (640, 760)):
        report.open()
        options = brushed(report, from_x, to_x)
        assert 0 < report.samples == exported(ranked_run, capsys, *options)
        report.page.click("#gpu-idle")
        assert report.samples == exported(ranked_run, capsys, *options, "--gpu-idle")


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
