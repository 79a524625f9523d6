"""The flame view on a run with known answers, by its keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dashboard import OpenDashboard, open_dashboard
from support.gpurun import waits, write_gpu_run
from support.present import there
from support.synthetic import MAIN
from textual.widgets import Input

from profd.tui.feed import FlameGrown
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.tabs import TabLine


async def open_flame(opened: OpenDashboard) -> FlameView:
    await opened.press("3")
    await opened.until(FlameGrown)
    return opened.widget(FlameView)


def title(view: FlameView) -> str:
    return there(view.cursor.block).node.title


async def test_arrows_walk_enter_zooms_and_backspace_goes_back(opened: OpenDashboard) -> None:
    view = await open_flame(opened)
    await opened.press("down", "down", "down", "down")
    assert title(view) == "train_epoch"
    below = opened.text(FlameView).splitlines()[-2]
    for part in (
        "train_epoch",
        "train.py:58",
        "self 0.0 %",
        "total 40.0 %",
        "for images, labels in loader:",
    ):
        assert part in below
    await opened.press("right", "right")
    assert "train.py:61" in opened.text(FlameView).splitlines()[-2]
    await opened.press("enter")
    assert [(block.node.place, block.width) for block in view.cursor.row(0)] == [
        ("train.py:61", 120)
    ]
    assert "zoomed to train_epoch · ⌫ goes back" in opened.text(TabLine)
    await opened.press("down", "enter")
    assert view.cursor.row(0)[0].node.place != "train.py:61"
    await opened.press("backspace")
    assert [(block.node.place, block.width) for block in view.cursor.row(0)] == [
        ("train.py:61", 120)
    ]
    await opened.press("backspace")
    assert [block.node.title for block in view.cursor.row(0)] == ["all"]
    assert "train.py:61" in opened.text(FlameView).splitlines()[-2]
    await opened.press("up", "up")
    assert title(view) == "<module>"
    await opened.press("escape")
    assert not view.cursor.is_set
    await opened.press("left")  # without a cursor arrows move through time
    await opened.snapshot(lambda snapshot: snapshot.view.chosen is not None)


async def test_i_puts_the_leaves_on_top_f_folds_libraries(
    opened: OpenDashboard,
) -> None:
    view = await open_flame(opened)
    await opened.press("i")
    assert {block.node.title for block in view.cursor.row(1)} >= {
        "Condition.wait",
        "_engine_run_backward",
    }
    assert "leaves on top" in opened.text(FlameView)
    assert "folded" not in opened.text(FlameView)
    await opened.press("i", "f")
    folded = [block.node.title for block in view.cursor.row(4)]
    assert "torch · 4 frames" in folded
    assert "colors by phase   folded" in opened.text(FlameView)
    await opened.press("c")  # of a GPU nothing is known
    assert "colors by phase   folded" in opened.text(FlameView)


async def test_c_colors_by_the_idle_gpu_where_there_is_one(tmp_path: Path) -> None:
    run = write_gpu_run(tmp_path / "a.profd", {"0": waits}, {MAIN: ("0",)})
    async with open_dashboard(run) as opened:
        view = await open_flame(opened)
        assert there(view.cursor.tree).gpu_idle == pytest.approx(0.55)
        await opened.press("c")
        assert "colors by idle GPU   busy" in opened.text(FlameView)
        for form in ((), ("i",), ("f",)):
            await opened.press(*form)
            looks = {
                round(block.node.gpu_idle or 0.0, 2): view._look(block.node)
                for row in view.cursor.rows
                for block in row
            }
            assert looks[1.0] == view.idle_look(1.0)
            assert looks[0.1] == view.idle_look(0.1) != looks[1.0]
        await opened.press("f", "i", "down", "down")
        assert "GPU 45 %" in opened.text(FlameView)
        await opened.press("c")
        assert view.coloring == "colors by phase"
        # Where room is short, what the colors mean is said all the same.
        await opened.resize(80, 24)
        await opened.press("escape", "i", "f", "c")
        legend = opened.text(FlameView).splitlines()[-2]
        assert "colors by idle GPU" in legend
        assert " idle" in legend.partition("busy")[2]
        assert legend.rstrip().endswith("folded")


async def test_a_search_marks_frames_and_says_their_share(opened: OpenDashboard) -> None:
    view = await open_flame(opened)
    await opened.press("slash", *"adam.py", "enter")
    assert " 8.0 % of the time has “adam.py” in its stack" in opened.text(FlameView)
    marked = {
        segment.text.strip("▏P ")[:3]
        for y in range(view.size.height)
        for segment in view.render_line(y)
        if segment.style and segment.style.underline
    }
    assert marked == {"_si", "….s"}  # the start of _single_tensor_adam and the end of Adam.step
    await opened.press("escape")
    assert opened.dashboard.query_one(Input).value == ""
    assert "of the time has" not in opened.text(FlameView)
    # With the cursor in the picture one escape ends the search, and another lets the cursor go.
    await opened.press("slash", *"adam.py", "enter", "down", "down")
    assert view.cursor.is_set
    await opened.press("escape")
    assert "of the time has" not in opened.text(FlameView)
    assert view.cursor.is_set
    await opened.press("escape")
    assert not view.cursor.is_set


async def test_a_click_takes_the_cursor_there_another_zooms_and_it_follows_the_scope(
    opened: OpenDashboard,
) -> None:
    view = await open_flame(opened)
    await opened.click(FlameView, (60, 3))
    assert there(view.cursor.block).node.place == "train.py:61"
    await opened.click(FlameView, (60, 3))
    assert [block.node.place for block in view.cursor.row(0)] == ["train.py:61"]
    await opened.press("t", "t")
    grown = await opened.until(FlameGrown, lambda message: message.tree.total_ns == 4 * 40e9)
    assert view.cursor.tree is grown.tree
