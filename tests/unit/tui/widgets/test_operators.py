"""The operators of torch.profiler windows in the dashboard."""

from __future__ import annotations

from pathlib import Path

from support import synthetic
from support.dashboard import open_dashboard

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS
from profd.daemon.store.records import OperatorTotals, WindowStep, WindowTaken
from profd.tui.feed import OperatorsRead
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.tabs import TabLine


def operator(name: str, self_ms: int, total_ms: int, calls: int, shapes: str = "[]") -> OperatorTotals:
    times_ns = (self_ms * MILLISECOND_NS, total_ms * MILLISECOND_NS)
    return OperatorTotals(name, "cpu", False, shapes, calls, *times_ns, 0, 0, 0, 0, 0, 0, 0)


def window(run: synthetic.LiveRun, *operators: OperatorTotals, error: str = "") -> WindowTaken:
    at_ns = run.started_ns + SECOND_NS
    steps, end_ns = (WindowStep(at_ns, at_ns + 20 * MILLISECOND_NS),), at_ns + 60 * MILLISECOND_NS
    return WindowTaken(synthetic.MAIN, at_ns, "kineto", at_ns, error, at_ns, end_ns, steps, operators=operators)


async def test_operators_are_in_the_columns_of_torch_and_can_be_ordered(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        run.writer.put(
            window(
                run,
                operator("aten::add", 30, 30, 300, "[[2]]"),
                operator("aten::add", 10, 10, 100, "[[4]]"),
                operator("aten::conv2d", 20, 55, 5),
            )
        )
        run.advance()
        async with open_dashboard(run.path) as opened:
            await opened.press("4")
            await opened.until(OperatorsRead, lambda message: message.shown is not None)
            lines = opened.text(OperatorTable).splitlines()
            assert lines[0].split("  ")[0].strip() == "Name"
            for head in ("Self CPU %", "Self CPU ▾", "CPU total", "CPU time avg", "# of Calls"):
                assert head in lines[0]
            assert "aten::add" in lines[1]
            assert "40.000ms" in lines[1]
            assert "66.67%" in lines[1]
            assert "400" in lines[1]
            assert "pid 4242 · 60.0 ms · 1 step · kineto" in opened.text(TabLine)
            await opened.press("o")
            assert "CPU total ▾" in opened.text(OperatorTable)
            assert [row.name for row in opened.widget(OperatorTable).rows] == ["aten::conv2d", "aten::add"]
            await opened.press("slash", *"add")
            assert [row.name for row in opened.widget(OperatorTable).rows] == ["aten::add"]


async def test_a_window_that_was_not_taken_is_passed_over(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        run.writer.put(window(run, operator("aten::mm", 1, 1, 1)))
        run.writer.put(window(run, error="it ended"))
        run.advance()
        async with open_dashboard(run.path) as opened:
            await opened.press("4")
            read = await opened.until(OperatorsRead)
            assert read.shown is not None
            assert [row.name for row in read.shown.operators] == ["aten::mm"]
