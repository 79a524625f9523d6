"""Moving in time: every key and the mouse, by what it changes below the timeline."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import STARTED_NS
from theater import Theater, play, train_backward

from profd.daemon.clock import SECOND_NS
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.tabs import TabLine
from profd.tui.widgets.timeline import LABEL_CELLS, Scrubbed, Timeline

SIZES = [(20, 5), (80, 24), (120, 36), (200, 60)]


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=64)


async def press(theater: Theater, *keys: str) -> Snapshot:
    """Press keys, and wait for the snapshot that answers the last one."""
    await theater.press(*keys)
    scrub = theater.widget(Timeline).scrub
    return await theater.snapshot(
        lambda found: (
            (found.view.chosen, found.view.span_ns, found.view.end_ns) == (scrub.chosen, scrub.span_ns, scrub.end_ns)
        )
    )


def seconds_of(snapshot: Snapshot) -> tuple[float, float]:
    return (snapshot.from_ns - STARTED_NS) / SECOND_NS, (snapshot.to_ns - STARTED_NS) / SECOND_NS


async def test_left_and_right_move_a_cursor_and_everything_below_follows(ended: Path) -> None:
    async with play(ended) as theater:  # 64 columns of a second
        found = await press(theater, "left")
        assert seconds_of(found) == (63, 64)
        assert found.samples == 100
        found = await press(theater, "left", "left", "shift+left", "right")
        assert seconds_of(found) == (52, 53)
        assert "12:00:52–12:00:53 · 100 samples" in theater.text(TabLine)  # noqa: RUF001
        assert theater.text(Timeline).splitlines()[-2][LABEL_CELLS + 52] == "┃"
        assert found.timeline.gauges[0].kind == "mean"
        assert [share.share for share in found.timeline.lanes[0].shares] == pytest.approx(
            sorted(synthetic.PHASE_SHARES.values(), reverse=True)
        )


async def test_brackets_choose_a_range_that_is_shown_and_counted(ended: Path) -> None:
    async with play(ended) as theater:
        await press(theater, "left", "shift+left", "shift+left", "left_square_bracket")
        found = await press(theater, "shift+right", "right_square_bracket")
        assert seconds_of(found) == (43, 54)
        assert found.samples == 1100
        marks, axis = theater.text(Timeline).splitlines()[-2:]
        assert marks[LABEL_CELLS + 43 : LABEL_CELLS + 54] == "[" + "─" * 9 + "┃"
        assert "[── 12:00:43 – 12:00:54 ──]" in axis  # noqa: RUF001
        found = await press(theater, "escape")
        assert found.view.chosen is None
        assert found.samples == 6400


async def test_the_processes_are_those_of_the_range(ended: Path) -> None:
    async with play(ended) as theater:
        found = await press(theater, "3", "left", "shift+left")
        main, worker, _ = found.processes
        assert main.cpu_cores == pytest.approx(0.6)
        assert worker.cpu_cores == pytest.approx(0.97)
        assert main.rss_bytes == pytest.approx(900e6 + 52e6)
        assert (worker.function, main.phase) == ("elastic_deform", "data wait")


async def test_z_shows_less_time_around_the_cursor_and_capital_z_more(ended: Path) -> None:
    async with play(ended) as theater:
        found = await press(theater, "z")
        assert seconds_of(found) == (34, 64)
        assert "last 30 s" in theater.text(TabLine)
        assert found.samples == 3000
        found = await press(theater, "Z", "left", "shift+left", "shift+left", "z")
        ruler = found.timeline.ruler
        assert (ruler.from_ns - STARTED_NS) / SECOND_NS == pytest.approx(28.5, abs=1)
        assert (await press(theater, "Z")).view.span_ns is None


async def test_g_goes_to_a_time(ended: Path) -> None:
    async with play(ended) as theater:
        found = await press(theater, "g", *"12.5", "enter")
        assert seconds_of(found) == (12, 13)


async def test_g_says_what_is_no_time_and_escape_goes_nowhere(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.press("g", *"soon", "enter")
        assert theater.top() is not theater.dashboard
        assert "soon is no time" in str(theater.top().query_one("#goto-error").render())
        await theater.press("escape")
        assert theater.top() is theater.dashboard
        assert theater.widget(Timeline).scrub.is_live


async def test_the_mouse_puts_the_cursor_and_drags_a_range(ended: Path) -> None:
    async with play(ended) as theater:
        await theater.click(Timeline, (LABEL_CELLS + 20, 1))
        found = await theater.snapshot(lambda found: found.view.chosen is not None)
        assert seconds_of(found) == (20, 21)
        await theater.pilot.mouse_down(Timeline, offset=(LABEL_CELLS + 30, 2))
        await theater.pilot.hover(Timeline, offset=(LABEL_CELLS + 39, 3))
        await theater.pilot.mouse_up(Timeline, offset=(LABEL_CELLS + 39, 3))
        found = await theater.snapshot(lambda found: found.to_ns - found.from_ns == 10 * SECOND_NS)
        assert seconds_of(found) == (30, 40)
        assert found.samples == 1000


async def test_a_click_beside_the_axis_goes_back_to_live(ended: Path) -> None:
    async with play(ended) as theater:
        await press(theater, "left")
        height = theater.widget(Timeline).size.height
        await theater.click(Timeline, (LABEL_CELLS + 70, height - 1))
        await theater.until(Scrubbed, lambda message: message.scrub.is_live)


async def test_what_is_looked_at_stays_while_the_run_goes_on_and_escape_follows_it_again(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=40) as run:
        async with play(run.path) as theater:
            assert "live ▶" in theater.text(Timeline)
            before = await press(theater, "z", "left", "left")
            train_backward(run, seconds=15)
            after = await theater.snapshot(lambda found: found.info.end_ns > before.info.end_ns)
            assert (after.from_ns, after.to_ns, after.functions) == (before.from_ns, before.to_ns, before.functions)
            assert after.timeline.ruler == before.timeline.ruler
            # The last column was not over yet.
            assert after.timeline.lanes[0].cells[:-1] == before.timeline.lanes[0].cells[:-1]
            found = await press(theater, "escape")
            assert found.to_ns == found.info.end_ns
            assert found.timeline.lanes[0].shares[0].phase == "backward"


async def test_a_range_without_an_end_grows_with_the_run(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=4) as run:
        async with play(run.path) as theater:
            await press(theater, "left", "left", "left_square_bracket")
            assert "– now" in theater.text(Timeline)  # noqa: RUF001
            train_backward(run, seconds=20)
            found = await theater.snapshot(lambda found: found.samples > 2000)
            assert found.to_ns == found.info.end_ns
            assert theater.widget(HotTable).rows[0].function == "_engine_run_backward"


@pytest.mark.parametrize("size", SIZES)
async def test_time_can_be_scrubbed_in_every_room(ended: Path, size: tuple[int, int]) -> None:
    async with play(ended, size=size) as theater:
        for key in ("left", "left_square_bracket", "shift+left", "right_square_bracket", "z", "right", "Z", "escape"):
            found = await press(theater, key)
            assert found.samples > 0
            for kind in (Timeline, TabLine, HotTable):
                widget = theater.widget(kind)
                for y in range(widget.size.height):
                    assert widget.render_line(y).cell_length == widget.size.width


async def test_without_color_cursor_and_range_are_signs(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with play(ended) as theater:
        await press(theater, "left", "left_square_bracket", "left", "left")
        marks = theater.text(Timeline).splitlines()[-2]
        assert (marks[LABEL_CELLS + 61], marks[LABEL_CELLS + 63]) == ("┃", "[")
        lane = theater.widget(Timeline).render_line(3)
        assert [segment.text for segment in lane if segment.style and segment.style.reverse] == ["D"]
