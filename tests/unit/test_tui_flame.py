"""The flame view on a run with known answers, by its keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from gpurun import waits, write_gpu_run
from synthetic import MAIN
from textual.widgets import Input
from theater import Theater, play, train_backward

from profd.tui.flame.icicle import Block
from profd.tui.reading.exhibits import FlameGrown
from profd.tui.view import ScopeKind
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.tabs import TabLine


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    return synthetic.write_run(tmp_path / "a.profd", seconds=40)


async def open_flame(theater: Theater) -> FlameView:
    await theater.press("2")
    await theater.until(FlameGrown)
    return theater.widget(FlameView)


def title(view: FlameView) -> str:
    block = view.walk.current
    assert block is not None
    return block.node.title


def place(block: Block | None) -> str | None:
    return block and block.node.place


async def test_widths_are_the_shares_of_the_main_thread(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        assert "main threads · whole run · 4,000 samples" in theater.text(TabLine)
        # <module> and main, then the six lines of the loop in the order in which they were seen first.
        assert [len(row) for row in view.walk.rows[:3]] == [1, 1, 1]
        row = view.walk.row(3)
        assert [(block.node.place, block.width) for block in row] == [
            ("train.py:58", 48),
            ("train.py:60", 2),
            ("train.py:61", 24),
            ("train.py:62", 8),
            ("train.py:63", 24),
            ("train.py:64", 9),
            ("train.py:65", 5),
        ]
        lines = theater.text(FlameView).splitlines()
        assert "all" in lines[0]
        assert "train_epoch" in lines[3]
        assert "colors by phase" in lines[-2]


async def test_arrows_walk_and_the_frame_under_the_cursor_is_told_below(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.press("down", "down", "down", "down")
        assert title(view) == "train_epoch"
        below = theater.text(FlameView).splitlines()[-2]
        for part in ("train_epoch", "train.py:58", "self 0.0 %", "total 40.0 %", "for images, labels in loader:"):
            assert part in below
        await theater.press("right", "right")
        assert "train.py:61" in theater.text(FlameView).splitlines()[-2]
        await theater.press("up", "up")
        assert title(view) == "<module>"
        await theater.press("escape")
        assert not view.has_cursor


async def test_without_a_cursor_arrows_move_through_time(ended: Path) -> None:
    async with play(ended) as theater:
        await open_flame(theater)
        await theater.press("left")
        await theater.snapshot(lambda snapshot: snapshot.view.chosen is not None)


async def test_enter_zooms_and_backspace_goes_back(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.press("down", "down", "down", "down", "right", "right", "enter")
        assert [(block.node.place, block.width) for block in view.walk.row(0)] == [("train.py:61", 120)]
        assert "zoomed to train_epoch · ⌫ goes back" in theater.text(TabLine)
        await theater.press("backspace")
        assert [block.node.title for block in view.walk.row(0)] == ["all"]
        assert "train.py:61" in theater.text(FlameView).splitlines()[-2]


async def test_i_puts_the_leaves_on_top_and_f_folds_libraries(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.press("i")
        assert {block.node.title for block in view.walk.row(1)} >= {"Condition.wait", "_engine_run_backward"}
        assert "leaves on top" in theater.text(FlameView)
        assert "folded" not in theater.text(FlameView)
        await theater.press("i", "f")
        folded = [block.node.title for block in view.walk.row(4)]
        assert "torch · 4 frames" in folded
        assert "colors by phase   folded" in theater.text(FlameView)


async def test_c_colors_by_the_idle_gpu_where_there_is_one(tmp_path: Path) -> None:
    async with play(write_gpu_run(tmp_path / "a.profd", {"0": waits}, {})) as theater:
        view = await open_flame(theater)
        assert view.walk.tree is not None
        assert view.walk.tree.gpu_idle == pytest.approx(0.55)
        await theater.press("c", "c")
        assert "colors by idle GPU   busy" in theater.text(FlameView)
        for form in ((), ("i",), ("f",)):
            await theater.press(*form)
            looks = {
                round(block.node.gpu_idle or 0.0, 2): view._look(block.node) for row in view.walk.rows for block in row
            }
            assert looks[1.0] == view.idle_look(1.0)
            assert looks[0.1] == view.idle_look(0.1) != looks[1.0]
        await theater.press("f", "i", "down", "down")
        assert "GPU idle 55 %" in theater.text(FlameView)
        await theater.press("c")
        assert view.coloring == "colors by phase"


async def test_c_colors_by_module_and_back(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        row = 4

        def colors() -> list[object]:
            return [segment.style.bgcolor for segment in view.render_line(row) if segment.style]

        by_phase = colors()
        await theater.press("c")
        assert "colors by module" in theater.text(FlameView)
        assert colors() != by_phase
        await theater.press("c")
        assert colors() == by_phase


async def test_a_search_marks_frames_and_says_their_share(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.press("slash", *"adam.py", "enter")
        assert " 8.0 % of the time has “adam.py” in its stack" in theater.text(FlameView)
        marked = {
            segment.text.strip("▏P ")[:3]
            for y in range(view.size.height)
            for segment in view.render_line(y)
            if segment.style and segment.style.underline
        }
        assert marked == {"_si", "….s"}  # the start of _single_tensor_adam and the end of Adam.step
        await theater.press("escape")
        assert theater.dashboard.query_one(Input).value == ""
        assert "of the time has" not in theater.text(FlameView)


async def test_one_escape_ends_a_search_with_the_cursor_in_the_picture(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.press("slash", *"adam.py", "enter", "down", "down")
        assert view.has_cursor
        await theater.press("escape")
        assert "of the time has" not in theater.text(FlameView)
        assert view.has_cursor
        await theater.press("escape")
        assert not view.has_cursor


async def test_what_the_colors_mean_is_said_where_room_is_short(tmp_path: Path) -> None:
    run = write_gpu_run(tmp_path / "a.profd", {"0": waits}, {MAIN: ("0",)})
    async with play(run, size=(80, 24)) as theater:
        await open_flame(theater)
        await theater.press("i", "f", "c", "c")
        legend = theater.text(FlameView).splitlines()[-2]
        assert "colors by idle GPU" in legend
        assert " idle" in legend.partition("busy")[2]
        assert legend.rstrip().endswith("folded")


async def test_it_follows_the_scope(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.press("t")
        await theater.snapshot(lambda snapshot: snapshot.view.scope.kind is ScopeKind.ALL)
        grown = await theater.until(FlameGrown)
        assert grown.tree.total_ns == 4 * 40e9
        assert view.walk.tree is grown.tree


async def test_it_grows_with_the_run_and_the_cursor_stays(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        async with play(run.path) as theater:
            view = await open_flame(theater)
            await theater.press("down", "down", "down", "down")
            before = view.walk.current
            train_backward(run, seconds=20)
            await theater.until(FlameGrown, lambda message: message.tree.total_ns >= 22e9)
            after = view.walk.current
            assert before is not None
            assert after is not None
            assert after.path == before.path
            assert after.width < before.width / 2


async def test_a_click_takes_the_cursor_there_and_another_zooms(ended: Path) -> None:
    async with play(ended) as theater:
        view = await open_flame(theater)
        await theater.click(FlameView, (60, 3), lambda: place(view.walk.current) == "train.py:61")
        await theater.click(FlameView, (60, 3), lambda: [place(block) for block in view.walk.row(0)] == ["train.py:61"])


async def test_without_color_letters_carry_the_phase(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with play(ended) as theater:
        await open_flame(theater)
        lines = theater.text(FlameView).splitlines()
        assert lines[3].startswith("D train_epoch")
        assert "▏B train_epoch" in lines[3]
