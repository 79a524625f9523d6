"""The workers of a loader are one row if they are many, and the events are those of the training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dashboard import OpenDashboard, open_dashboard
from support.findingruns import HEALTHY, Series, write_case
from support.synthetic import STARTED_NS, WORKER_STEP, live_run, worker

from profd.daemon.events import EventKind
from profd.daemon.store.records import EventHappened
from profd.tui.dashboard import Dashboard
from profd.tui.dialogs import SheetScreen
from profd.tui.widgets.processes import EventTable, ProcessTable
from profd.tui.widgets.timeline import Timeline


def names(opened: OpenDashboard) -> list[str]:
    found = opened.text(ProcessTable).splitlines()[1:]
    return [line[:24].strip() for line in found if line.strip() and "more in rows" not in line]


@pytest.mark.parametrize("generations", [1, 10])
async def test_many_workers_are_one_row_that_enter_unfolds(
    tmp_path: Path, generations: int
) -> None:
    workers = dict.fromkeys(range(1, 7), WORKER_STEP)
    path = write_case(
        tmp_path / "a.profd", HEALTHY, workers=workers, seconds=60, generations=generations
    )
    async with open_dashboard(path) as opened:
        await opened.press("4")
        main, every = names(opened)
        ended = "" if generations == 1 else " +54 ended"
        assert (main, every) == ("main", f"└ 6 workers{ended}")
        assert "more in rows of many: ⏎ shows each" in opened.text(ProcessTable)
        said = "60.0 started a minute" in opened.text(ProcessTable)
        assert said is (generations > 1)
        assert "CPU 0 % to" not in opened.text(ProcessTable)  # nobody read it
        await opened.press("down", "down", "enter")
        table = opened.widget(ProcessTable)
        assert len(table.rows) > 7
        assert names(opened)[2] == "└ worker 1"
        await opened.press("enter")
        assert names(opened) == [main, every]
        await opened.press("slash", *"worker 3", "enter")
        assert {name.removesuffix(" ended") for name in names(opened)} == {"└ worker 3"}
        await opened.press("escape", "escape")
        assert names(opened) == [main, every]


async def test_few_workers_are_rows_of_their_own(tmp_path: Path) -> None:
    workers = dict.fromkeys(range(1, 5), WORKER_STEP)
    path = write_case(tmp_path / "a.profd", HEALTHY, workers=workers, seconds=4)
    async with open_dashboard(path) as opened:
        await opened.press("4")
        assert names(opened) == ["main", *(f"└ worker {number}" for number in range(1, 5))]


async def test_profds_own_rate_is_a_detail_of_the_events(tmp_path: Path) -> None:
    text = "profd samples at 9 Hz instead of 14 Hz, to stay within its budget"
    with live_run(tmp_path / "a.profd", seconds=3) as run:
        assert run.writer.put(EventHappened(STARTED_NS, EventKind.RATE, text))
        run.advance(0)
        async with open_dashboard(run.path) as opened:
            await opened.press("7")
            assert text not in opened.text(EventTable)
            assert "and 1 more of profd's own rate: l shows them" in opened.text(EventTable)
            assert "note" not in opened.text(Timeline)
            await opened.press("l")
            assert text in opened.text(EventTable)
            await opened.press("l")
            assert text not in opened.text(EventTable)


@pytest.mark.parametrize(("busiest", "said"), [(0.504, "CPU 50 %  "), (0.9, "CPU 50 % to 90 %")])
async def test_a_range_whose_ends_read_the_same_is_one_number(
    tmp_path: Path, busiest: float, said: str
) -> None:
    workers = dict.fromkeys(range(1, 7), WORKER_STEP)
    cores = [
        Series("cpu_cores", busiest if number == 6 else 0.496, identity=worker(number))
        for number in workers
    ]
    path = write_case(tmp_path / "a.profd", HEALTHY, workers=workers, series=cores, seconds=8)
    async with open_dashboard(path) as opened:
        await opened.press("4")
        assert said in opened.text(ProcessTable)


async def test_enter_on_an_event_shows_all_of_its_text_where_its_row_has_no_room(
    tmp_path: Path,
) -> None:
    text = f"not read: {'what py-spy says of it ' * 4}, \x1b[2J as of now"
    with live_run(tmp_path / "a.profd", seconds=3) as run:
        assert run.writer.put(EventHappened(STARTED_NS, EventKind.GAP, text))
        run.advance(0)
        async with open_dashboard(run.path, size=(80, 24)) as opened:
            await opened.press("7", "end")
            assert "as of now" not in opened.text(EventTable)
            table = opened.widget(EventTable)
            row = next(row for row in table.rows if row.kind is EventKind.GAP)
            while table.current != row:
                await opened.press("up")
            await opened.press("enter")
            assert isinstance(opened.top(), SheetScreen)
            sheet = opened.app.export_screenshot().replace("&#160;", " ")
            assert "\\x1b[2J as of now" in sheet
            await opened.press("escape")
            assert isinstance(opened.top(), Dashboard)
