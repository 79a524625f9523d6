"""Moving in time: every key and the mouse, by what it changes below the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard, train_backward
from support.present import there
from support.synthetic import STARTED_NS
from textual.widgets import Static

from profd.daemon.clock import SECOND_NS
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import LABEL_CELLS, Timeline


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=64)  # 64 columns of a second


async def press(opened: OpenDashboard, *keys: str) -> Snapshot:
    """Press keys, and return the snapshot that answers the last one."""
    await opened.press(*keys)
    scrub, found = opened.widget(Timeline).scrub, there(opened.widget(Timeline).snapshot)
    assert (found.view.chosen, found.view.span_ns, found.view.end_ns) == (
        scrub.chosen,
        scrub.span_ns,
        scrub.end_ns,
    )
    return found


def seconds_of(snapshot: Snapshot) -> tuple[float, float]:
    from_ns, to_ns = snapshot.time.moved(-STARTED_NS)
    return from_ns / SECOND_NS, to_ns / SECOND_NS


async def test_arrows_move_a_cursor_and_brackets_choose_a_range_and_everything_below_follows(
    opened: OpenDashboard,
) -> None:
    found = await press(opened, "left")
    assert (seconds_of(found), found.samples) == ((63, 64), 100)
    found = await press(opened, "left", "left", "shift+left", "right")
    assert seconds_of(found) == (52, 53)
    assert "main threads · 100 samples" in opened.text(TabLine)
    assert "12:00:52 – 12:00:53" in opened.text(Timeline)  # noqa: RUF001
    assert opened.text(Timeline).splitlines()[-2][LABEL_CELLS + 52] == "┃"
    assert found.timeline.series[0].kind == "mean"
    assert list(found.timeline.phase_rows[0].shares.values()) == pytest.approx(
        sorted(synthetic.PHASE_SHARES.values(), reverse=True)
    )
    found = await press(
        opened, "shift+left", "right", "left_square_bracket", "shift+right", "right_square_bracket"
    )
    assert (seconds_of(found), found.samples) == ((43, 54), 1100)
    marks, axis = opened.text(Timeline).splitlines()[-2:]
    assert marks[LABEL_CELLS + 43 : LABEL_CELLS + 54] == "[" + "─" * 9 + "┃"
    assert "[── 12:00:43 – 12:00:54 ──]" in axis  # noqa: RUF001
    found = await press(opened, "escape")
    assert (found.view.chosen, found.samples) == (None, 6400)


async def test_z_shows_less_time_around_the_cursor_and_capital_z_more(
    opened: OpenDashboard,
) -> None:
    found = await press(opened, "z")
    assert seconds_of(found) == (34, 64)
    assert "last 30 s" in opened.text(TabLine)
    assert found.samples == 3000
    found = await press(opened, "Z", "left", "shift+left", "shift+left", "z")
    ruler = found.timeline.ruler
    assert (ruler.from_ns - STARTED_NS) / SECOND_NS == pytest.approx(28.5, abs=1)
    assert (await press(opened, "Z")).view.span_ns is None
    found = await press(opened, "escape", "4", "left", "shift+left")
    main, worker, _ = found.processes
    assert main.cpu_cores == pytest.approx(0.6)
    assert worker.cpu_cores == pytest.approx(0.97)
    assert main.rss_bytes == pytest.approx(900e6 + 53e6)
    assert (worker.function, main.phase) == ("elastic_deform", "data wait")


async def test_g_goes_to_a_time_or_says_what_is_none_and_the_mouse_drags_a_range(
    opened: OpenDashboard,
) -> None:
    await opened.press("g", *"soon", "enter")
    assert "soon is no time" in str(opened.top().query_one(Static).render())
    await opened.press("escape")
    assert opened.top() is opened.dashboard
    assert opened.widget(Timeline).scrub.is_live
    for typed, at_s in (("12.5", 12), ("12:00:30", 30)):
        found = await press(opened, "g", *typed, "enter")
        assert seconds_of(found) == (at_s, at_s + 1)
    await opened.press("escape")
    await opened.click(Timeline, (LABEL_CELLS + 20, 1))
    found = await opened.snapshot(lambda found: seconds_of(found) == (20, 21))
    await opened.pilot.mouse_down(Timeline, offset=(LABEL_CELLS + 30, 2))
    await opened.pilot.hover(Timeline, offset=(LABEL_CELLS + 39, 3))
    await opened.pilot.mouse_up(Timeline, offset=(LABEL_CELLS + 39, 3))
    found = await opened.snapshot(lambda found: found.time.length_ns == 10 * SECOND_NS)
    assert seconds_of(found) == (30, 40)
    assert found.samples == 1000
    height = opened.widget(Timeline).size.height
    await opened.click(Timeline, (LABEL_CELLS + 70, height - 1))  # beside the axis: back to live
    assert opened.widget(Timeline).scrub.is_live


async def test_what_is_looked_at_stays_while_the_run_goes_on_and_escape_follows_it_again(
    tmp_path: Path,
) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=40) as run:
        async with open_dashboard(run.path) as opened:
            assert "live ▶" in opened.text(Timeline)
            before = await press(opened, "z", "left", "left")
            train_backward(run, seconds=15)
            after = await opened.snapshot(lambda found: found.info.end_ns > before.info.end_ns)
            assert (after.time, after.functions) == (
                before.time,
                before.functions,
            )
            assert after.timeline.ruler == before.timeline.ruler
            # The last column was not over yet.
            assert (
                after.timeline.phase_rows[0].cells[:-1] == before.timeline.phase_rows[0].cells[:-1]
            )
            found = await press(opened, "escape")
            assert found.time.to_ns == found.info.end_ns
            assert next(iter(found.timeline.phase_rows[0].shares)) == "backward"
            # A range without an end grows with the run.
            begun = await press(opened, "left", "left", "left_square_bracket")
            assert "– now" in opened.text(Timeline)  # noqa: RUF001
            train_backward(run, seconds=5)
            found = await opened.snapshot(lambda found: found.samples == begun.samples + 500)
            assert found.time.to_ns == found.info.end_ns


async def test_without_color_cursor_and_range_are_signs(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_dashboard(ended) as opened:
        await press(opened, "left", "left_square_bracket", "left", "left")
        marks = opened.text(Timeline).splitlines()[-2]
        assert (marks[LABEL_CELLS + 61], marks[LABEL_CELLS + 63]) == ("┃", "[")
        row = opened.widget(Timeline).render_line(3)
        assert [segment.text for segment in row if segment.style and segment.style.reverse] == ["D"]
