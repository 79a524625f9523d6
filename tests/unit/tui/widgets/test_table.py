"""What the keys of all tables do: moving, filtering, scrolling.

By messages, and by what is on the screen.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from support import synthetic
from support.dashboard import OpenDashboard, open_dashboard
from support.gpurun import OTHER_RANK, waits, write_gpu_run
from support.present import there
from support.synthetic import MAIN, MAIN_TID, STARTED_NS
from textual.widgets import Input

from profd.daemon.clock import MILLISECOND_NS as MS
from profd.daemon.clock import SECOND_NS
from profd.daemon.exports.formats import FORMATS
from profd.daemon.store import records
from profd.daemon.store.records import OperatorTotals, ProcessEnded, WindowStep, WindowTaken
from profd.daemon.timerange import TimeRange
from profd.tui.actions import ActionDone, ActionFailed
from profd.tui.dialogs import ChoiceScreen
from profd.tui.feed import FlameGrown, OperatorsRead, OutputDrawn
from profd.tui.widgets.findings import EvidencePane, FindingTable
from profd.tui.widgets.flame import FlameView
from profd.tui.widgets.header import VerdictLine
from profd.tui.widgets.hot import HotTable, LineTable
from profd.tui.widgets.operators import OperatorTable
from profd.tui.widgets.output import OutputPane
from profd.tui.widgets.processes import EventTable, ProcessTable
from profd.tui.widgets.table import CursorMoved
from profd.tui.widgets.tabs import TabLine

WORKERS = 60
FILTERED: list[tuple[str, type[HotTable | ProcessTable | EventTable], str, str, str]] = [
    ("2", HotTable, "adam", "_single_tensor_adam", "Condition.wait"),
    ("4", ProcessTable, "worker 2", "└ worker 2", "└ worker 1"),
    ("7", EventTable, "ended", "ended", "started"),
]
"""Key, table, a word, what there has it and what has not."""


async def ordinal_after(opened: OpenDashboard, *keys: str) -> int | None:
    """Press keys in the process tree, and return the number of the worker under the cursor: 0 is
    the main process.
    """
    await opened.press(*keys)
    await opened.until(CursorMoved)
    return there(opened.widget(ProcessTable).current).row.ordinal or 0


async def test_the_cursor_goes_by_rows_by_pages_and_to_the_ends(tmp_path: Path) -> None:
    async with open_dashboard(
        synthetic.write_run(tmp_path / "a.profd", seconds=1, workers=WORKERS)
    ) as opened:
        await opened.press("4", "down", "down", "enter", "escape")
        page = opened.widget(ProcessTable).size.height - 2
        assert await ordinal_after(opened, "down") == 0
        assert await ordinal_after(opened, "j", "j", "j") == 2
        assert await ordinal_after(opened, "k") == 1
        assert await ordinal_after(opened, "pagedown") == 1 + page
        assert f"worker {1 + page}" in opened.text(ProcessTable)
        assert await ordinal_after(opened, "pageup") == 1
        assert await ordinal_after(opened, "end") == WORKERS
        assert f"worker {WORKERS}" in opened.text(ProcessTable)
        assert await ordinal_after(opened, "home") == 0
        assert f"worker {WORKERS}" not in opened.text(ProcessTable)


async def test_a_filter_keeps_the_rows_with_a_word_in_every_table(opened: OpenDashboard) -> None:
    await opened.press("2")
    every = len(opened.widget(HotTable).rows)
    for key, kind, needle, kept, gone in FILTERED:
        await opened.press(key)
        assert gone in opened.text(kind)
        await opened.press("slash", *needle)
        assert opened.dashboard.query_one(Input).value == needle
        assert kept in opened.text(kind)
        assert gone not in opened.text(kind)
        await opened.press("enter")
        assert opened.app.focused is opened.widget(kind)
        await opened.press("escape")
        assert gone in opened.text(kind)
    await opened.press("2", "slash", "q", "Z")  # letters there, and no commands
    assert "Nothing here has" in opened.text(HotTable)
    await opened.press("escape", "slash", *"LOADER")
    assert 0 < len(opened.widget(HotTable).rows) < every


async def test_functions_whose_shares_round_to_nothing_are_one_row_unless_one_is_looked_for(
    opened: OpenDashboard,
) -> None:
    table = opened.widget(HotTable)
    await opened.press("2")
    row = table.rows[0]
    shares = [0.5, *[0.0006] * 2, *[0.0004] * 4_900]
    made = [
        msgspec.structs.replace(
            row, function=f"step_{number}", file=str(number), self_share=share, total_share=share
        )
        for number, share in enumerate(shares)
    ]
    table.show_rows(made)
    assert [one.function for one in table.rows] == ["step_0", "step_1", "step_2"]
    assert "and 4,900 more that are nothing to a tenth of a percent" in opened.text(HotTable)
    table.filter("step_42")
    assert len(table.rows) == 1 + 10 + 100
    assert "more that are nothing" not in opened.text(HotTable)


async def test_the_output_scrolls_by_pages_and_stays_where_it_was_scrolled_to(
    tmp_path: Path,
) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=1) as run:
        run.writer.put(
            records.OutputWritten(run.started_ns, b"".join(b"\r\nline %d," % n for n in range(200)))
        )
        run.advance()
        async with open_dashboard(run.path) as opened:
            await opened.press("8")
            await opened.until(
                OutputDrawn, lambda message: "line 198," in str(message.picture.lines)
            )
            assert "line 198," in opened.text(OutputPane)
            await opened.press("pageup", "pageup")
            shown = opened.text(OutputPane)
            assert "line 198," not in shown
            run.writer.put(records.OutputWritten(run.started_ns, b"\r\nmore\r\n"))
            run.advance()
            await opened.until(OutputDrawn, lambda message: "more" in str(message.picture.lines))
            assert opened.text(OutputPane) == shown
            await opened.press("pagedown", "pagedown", "pagedown")
            assert "more" in opened.text(OutputPane)


@pytest.mark.dashboard
async def test_e_exports_in_every_format_and_r_reports_or_says_why_not(
    ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_dashboard(ended) as opened:
        for downs, form in enumerate(FORMATS):
            await opened.press("e")
            assert isinstance(opened.top(), ChoiceScreen)
            await opened.press(*["down"] * downs, "enter")
            path = tmp_path / f"a{FORMATS[form].ending}"
            if form == "tensorboard":  # the run has no windows
                await opened.until(ActionFailed)
                assert not path.exists()
            else:
                done = await opened.until(ActionDone)
                assert (done.text, done.title) == (str(path), "Exported")
                assert (
                    path.stat().st_size > 100 or (path / f"processes.{form}").stat().st_size > 100
                )
        # A format has the threads that it tells apart, or those that are looked at.
        lines = (tmp_path / "a.collapsed.txt").read_text().splitlines()
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == 40 * 100
        assert len(json.loads((tmp_path / "a.speedscope.json").read_text())["profiles"]) == 4
        await opened.press("r")
        await opened.until_notice(str(tmp_path / "a.html"))
        assert (tmp_path / "a.html").stat().st_size > 1000
        for name, keys in (
            ("a.svg", ("e", *["down"] * list(FORMATS).index("svg"), "enter")),
            ("a.html", ("r",)),
        ):
            (tmp_path / name).unlink()
            (tmp_path / name).mkdir()
            await opened.press(*keys)
            failed = await opened.until(ActionFailed)
            assert "cannot write" in failed.error.what


@pytest.mark.parametrize(
    ("ended_s", "why"), [(30, "nothing was recorded then"), (5, "no training process was there")]
)
async def test_a_range_without_samples_says_of_when_and_why(
    tmp_path: Path, ended_s: int, why: str
) -> None:
    gap = TimeRange(STARTED_NS + 10 * SECOND_NS, STARTED_NS + 20 * SECOND_NS)
    times = "12:00:10–12:00:20"  # noqa: RUF001
    found: list[records.Record] = [
        synthetic.main_process(),
        synthetic.recording(
            MAIN,
            STARTED_NS,
            ((MAIN_TID, "MainThread", True, synthetic.STEP * 4),),
            duration_ns=2 * SECOND_NS,
        ),
        records.ProcessEnded(MAIN, STARTED_NS + ended_s * SECOND_NS, exit_code=0),
        records.RunEnded(STARTED_NS + 30 * SECOND_NS, "target-exited", 0),
    ]
    async with open_dashboard(synthetic.write_records(tmp_path / "a.profd", found)) as opened:
        opened.dashboard.choose_range(gap.from_ns, gap.to_ns)
        await opened.snapshot(lambda snapshot: snapshot.view.chosen == gap)
        for key, kind in (("1", LineTable), ("2", HotTable)):
            await opened.press(key)
            assert f"No samples of main threads between {times}: {why}." in opened.text(kind)
        assert f"No samples of a main thread between {times}: {why}." in opened.text(VerdictLine)
        await opened.press("3")
        await opened.until_text(FlameView, f"No samples of main threads between {times}: {why}.")


async def test_a_view_that_has_nothing_says_so(tmp_path: Path) -> None:
    attached = msgspec.structs.replace(synthetic.run_started(), mode="attached")
    synthetic.write_records(tmp_path / "a.profd", (), attached)
    async with open_dashboard(tmp_path / "a.profd", size=(80, 24)) as opened:
        await opened.press("5")
        await opened.until(OperatorsRead)
        said = " ".join(opened.text(OperatorTable).split())
        assert said.endswith("w takes one of a live run, best of one launched with --torch-window.")
        await opened.press("6", "enter")
        assert "Nothing was found." in opened.text(FindingTable)
        assert opened.widget(TabLine).tab == "findings"
        await opened.press("8")
        await opened.until(OutputDrawn)
        assert "it writes to a terminal of its own" in opened.text(OutputPane)


async def test_operators_are_in_the_columns_of_torch_and_can_be_ordered(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=3) as run:
        operators = tuple(
            OperatorTotals(
                name, "cpu", False, shapes, calls, self_ms * MS, total_ms * MS, 0, 0, 0, 0, 0, 0
            )
            for name, shapes, calls, self_ms, total_ms in (
                ("aten::add", "[[2]]", 300, 30, 30),
                ("aten::add", "[[4]]", 100, 10, 10),
                ("aten::conv2d", "[]", 5, 20, 55),
            )
        )
        at_ns = run.started_ns + SECOND_NS
        times_ns = (at_ns, at_ns + 60 * MS, (WindowStep(at_ns, at_ns + 20 * MS),))
        run.writer.put(
            WindowTaken(MAIN, at_ns, "kineto", at_ns, "", *times_ns, operators=operators)
        )
        run.writer.put(
            WindowTaken(MAIN, at_ns, "kineto", at_ns, "it ended", *times_ns)
        )  # it is passed over
        run.advance()
        async with open_dashboard(run.path) as opened:
            await opened.press("6")
            assert "Nothing was found yet." in opened.text(FindingTable)
            await opened.press("5")
            await opened.until(OperatorsRead, lambda message: message.shown is not None)
            assert "pid 4242 · 60.0 ms · 1 step · kineto" in opened.text(TabLine)
            for by, names in (
                ("Self CPU ▾", ["aten::add", "aten::conv2d"]),
                ("CPU total ▾", ["aten::conv2d", "aten::add"]),
            ):
                head, *lines = opened.text(OperatorTable).splitlines()
                assert by in head
                assert [row.name for row in opened.widget(OperatorTable).rows] == names
                (line,) = (line.split() for line in lines if "aten::add" in line)
                assert {"66.67%", "40.000ms", "400"} <= set(line)
                await opened.press("o")
            await opened.press("slash", *"add")
            assert [row.name for row in opened.widget(OperatorTable).rows] == ["aten::add"]


async def rows_of(opened: OpenDashboard) -> list[str]:
    """Open the tree, and return its lines, titles first."""
    await opened.press("4")
    return [line for line in opened.text(ProcessTable).splitlines() if line.strip()]


async def test_of_gpus_functions_have_the_utilization_and_processes_the_memory(
    tmp_path: Path,
) -> None:
    holders = {MAIN: ("0", "1"), OTHER_RANK: ("1",)}
    async with open_dashboard(
        write_gpu_run(tmp_path / "a.profd", {"0": waits, "1": waits}, holders)
    ) as opened:
        table = opened.widget(HotTable)
        await opened.press("2")
        assert "GPU" in opened.text(HotTable).splitlines()[0]
        assert 0.9 in [
            row.gpu_utilization
            for row in table.rows
            if row.function == synthetic.BACKWARD[-1].function
        ]
        await opened.press("o", "o")
        assert "GPU ▾" in opened.text(HotTable)
        shown = [row.gpu_utilization or 0.0 for row in table.rows]
        assert shown == sorted(shown)
        titles, first, second = await rows_of(opened)
    assert "GPU mem" in titles
    assert "2.0 GB" in first  # of both
    assert "1.0 GB" in second


async def test_columns_are_of_what_there_is_and_with_room_there_are_phases(tmp_path: Path) -> None:
    async with open_dashboard(synthetic.write_run(tmp_path / "a.profd")) as opened:
        titles = (await rows_of(opened))[0]
        assert titles.split() == [
            "process",
            "pid",
            "CPU",
            "RSS",
            "threads",
            "function,",
            "mostly",
            "where",
        ]
        await opened.resize(200, 60)
        titles, main, worker, _ = await rows_of(opened)
    assert "phase" in titles
    assert "data wait" in main
    assert "data" not in worker.replace("data.py", "")
    counts = [synthetic.steps_counted(at_s, 2.0 * at_s) for at_s in (0, 5, 10)]
    async with open_dashboard(synthetic.write_run(tmp_path / "b.profd", also=counts)) as opened:
        titles, main, worker, _ = await rows_of(opened)
    assert "steps" in titles
    assert "2.00/s" in main
    assert "/s" not in worker


async def test_what_has_ended_keeps_its_last_numbers_and_is_dimmed(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=4) as run:
        gone = ProcessEnded(synthetic.worker(2), run.started_ns + 4 * SECOND_NS, exit_code=0)
        assert run.writer.put(gone)
        run.advance()
        async with open_dashboard(run.path) as opened:
            _, _, running, ended = await rows_of(opened)
            assert "worker 2 ended" in ended
            for line in (running, ended):
                assert "97 %" in line
                assert "300 MB" in line
            table = opened.widget(ProcessTable)
            faint = [part for part in table.render_line(3) if "97 %" in part.text]
            assert faint[0].style == table.style_of("faint")


async def open_findings(opened: OpenDashboard) -> FindingTable:
    await opened.until_text(VerdictLine, "INPUT-BOUND")
    await opened.press("6")
    return opened.widget(FindingTable)


async def test_the_strongest_is_first_and_the_evidence_is_that_of_the_row_under_the_cursor(
    opened: OpenDashboard,
) -> None:
    table, evidence = await open_findings(opened), opened.widget(EvidencePane)
    assert table.rows[0].label == "input-bound"
    assert evidence.finding == table.rows[0]
    await opened.press("down", "down")
    assert evidence.finding == table.current == table.rows[1]
    await opened.resize(80, 24)
    assert (evidence.scroll_y, evidence.max_scroll_y > 0) == (0, True)
    await opened.press(*["pagedown"] * 9)
    assert evidence.scroll_y == evidence.max_scroll_y
    await opened.press(*["pageup"] * 9)
    assert (evidence.scroll_y, table.current) == (0, table.rows[1])


async def test_a_filter_keeps_those_with_a_word_and_enter_goes_to_the_range_and_the_stacks(
    opened: OpenDashboard,
) -> None:
    table = await open_findings(opened)
    await opened.press("slash", *"zzz")
    assert table.rows == []
    assert "Nothing here has" in opened.text(FindingTable)
    await opened.press("escape")
    wanted = table.rows[0].evidence
    await opened.press("enter")
    assert opened.widget(TabLine).tab == "flame"
    taken = await opened.snapshot(lambda snapshot: snapshot.view.chosen is not None)
    assert taken.time == (wanted.from_ns, wanted.to_ns)
    assert opened.dashboard.query_one(Input).value == "train.py:58"
    if opened.widget(FlameView).cursor.tree is None:
        await opened.until(FlameGrown)
    assert "% of the time has “train.py:58” in its stack" in opened.text(FlameView)
