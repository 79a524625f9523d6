"""The report's timeline: the values under the pointer, its zoom, and its size on a phone."""

from __future__ import annotations

from pathlib import Path

from support import synthetic
from support.browser import OpenReport, ReportPage


def point_at(report: ReportPage, seconds: float) -> None:
    """Move the pointer over a moment."""
    x, y = report.shown(
        f"(() => {{ const place = profd.timeline.node.getBoundingClientRect();"
        f" return [place.left + profd.timeline.toX({seconds * 1000}), place.top + 10]; }})()"
    )
    report.page.mouse.move(x, y)


def view(report: ReportPage) -> tuple[float, float]:
    from_ms, to_ms = report.shown("[profd.timeline.view.fromMs, profd.timeline.view.toMs]")
    return from_ms / 1000, to_ms / 1000


def test_the_pointer_has_the_values_of_all_rows(report: ReportPage) -> None:
    def told(seconds: float) -> dict[str, str]:
        point_at(report, seconds)
        names, values = (report.page.locator(f"#tooltip {tag}") for tag in ("dt", "dd"))
        return dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=True))

    waits, computes = told(4.5), told(5.5)
    assert waits["rank 0"] == waits["rank 1"] == "data wait"
    assert computes["rank 0"] == "backward"
    assert (waits["GPU 0 · utilization"], computes["GPU 0 · utilization"]) == ("0.0 %", "90.0 %")
    assert computes["steps · rank 0"] == "4.00/s"
    assert computes["memory, RSS · all processes"] == "2.0 GB"
    assert len(computes) == report.shown("profd.timeline.rows().length")
    assert "0:05.5" in report.page.inner_text("#tooltip")


def test_the_wheel_zooms_around_the_pointer_and_double_click_shows_all(
    report: ReportPage,
) -> None:
    point_at(report, 10)
    for _ in range(3):
        report.page.mouse.wheel(0, -100)
    report.shown("true")
    from_s, to_s = view(report)
    assert round(20 / 1.5**3, 3) == round(to_s - from_s, 3)
    point_at(report, 10)
    assert "0:10" in report.page.inner_text("#tooltip")
    assert report.address == ""  # what is shown is not what is selected
    report.page.mouse.wheel(100, 0)
    report.shown("true")
    assert view(report)[0] > from_s
    box = report.page.locator("#timeline").bounding_box()
    assert box
    report.page.mouse.dblclick(box["x"] + 600, box["y"] + 20)
    assert view(report) == (0, 20)


def test_the_wheel_scrolls_the_page_if_all_is_shown(report: ReportPage) -> None:
    def is_taken(turn: int) -> bool:
        event = f"new WheelEvent('wheel', {{ deltaY: {turn}, cancelable: true }})"
        return not report.shown(f"profd.timeline.node.dispatchEvent({event})")

    assert not is_taken(120)
    assert view(report) == (0, 20)
    assert is_taken(-120)
    assert is_taken(120)
    assert view(report) == (0, 20)


def test_keys_zoom_and_a_range_that_is_selected_comes_into_sight(report: ReportPage) -> None:
    report.page.focus("#timeline")
    for key in ("+", "+", "+"):
        report.page.keyboard.press(key)
    report.page.keyboard.press("ArrowRight")
    from_s, to_s = view(report)
    assert round(to_s - from_s, 3) == round(20 / 1.5**3, 3)
    report.page.evaluate("location.hash = 't=18-19'")
    report.wait_for("profd.selection.fromMs === 18000")
    report.shown("true")
    assert view(report)[1] >= 19
    report.page.keyboard.press("-")
    report.page.keyboard.press("Escape")
    assert view(report) == (0, 20)
    assert report.address == ""


def test_a_phone_has_a_timeline_as_wide_as_its_screen_and_at_least_160_pixels_high(
    open_report: OpenReport, tmp_path: Path
) -> None:
    path = synthetic.write_run(tmp_path / "run.profd", seconds=4, workers=0)
    report = open_report(path)
    report.page.set_viewport_size({"width": 390, "height": 800})
    report.wait_for("profd.timeline.isNarrow")
    report.shown("true")
    assert report.shown("profd.timeline.node.offsetHeight") >= 160
    assert report.shown("profd.timeline.plotWidth") > 300
    assert report.shown("document.documentElement.scrollWidth") == 390
    bare = report.shown(
        "(() => { profd.timeline.charts = []; profd.timeline.canvas.redrawNow();"
        " return profd.timeline.node.offsetHeight; })()"
    )
    assert bare >= 160
