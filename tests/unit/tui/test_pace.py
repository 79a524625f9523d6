"""The step and its rate in the dashboard's header, as the loop counter is read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import synthetic
from support.dashboard import open_dashboard
from support.present import there

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import EventHappened, Record, RunEnded
from profd.daemon.timerange import TimeRange
from profd.tui.columns import Ruler
from profd.tui.pace import Pace
from profd.tui.widgets.header import Header


def counted(
    path: Path,
    *counts: int,
    live: bool = False,
    lost_s: tuple[int, int | None] | None = None,
    child_s: int | None = None,
) -> Path:
    """Write a run with a count each five seconds, of a process that is a child and counted from
    ``child_s`` on.
    """
    length_s = (child_s or 0) + 5 * len(counts)
    started_ns = time.time_ns() - length_s * SECOND_NS if live else synthetic.STARTED_NS
    found: list[Record] = [
        replace(synthetic.main_process(started_ns), ordinal=None if child_s is None else 1)
    ]
    seconds = range(child_s or 0, length_s, 5)
    found += [
        synthetic.steps_counted(*each, started_ns=started_ns)
        for each in zip(seconds, counts, strict=True)
    ]
    for kind, at_s in zip(
        (EventKind.STEPS_LOST, EventKind.STEP_SOURCE), lost_s or (), strict=False
    ):
        if at_s is not None:
            found.append(EventHappened(started_ns + at_s * SECOND_NS, kind, "", synthetic.MAIN))
    if not live:
        found.append(RunEnded(started_ns + length_s * SECOND_NS, "target-exited", 0))
    return synthetic.write_records(path, found, synthetic.run_started(started_ns, live=live))


def pace_of(reader: RunReader, since_s: float = 0.0) -> Pace:
    """Return the pace of a run so many seconds after its last count."""
    last = [reader.last_point(row.id) for row in reader.list_series() if row.name == "step_count"]
    now_ns = (there(last[0]).at_ns if last else 0) + int(since_s * SECOND_NS)
    pace = Pace(reader, PhaseIndex(reader), lambda: now_ns)
    pace.catch_up(reader.events())
    return pace


def test_the_pace_is_that_of_the_last_ten_seconds(tmp_path: Path) -> None:
    with RunReader(
        counted(tmp_path / "a", 0, 5_000, *range(5_100, 5_901, 100), live=True)
    ) as reader:
        steps = there(pace_of(reader).steps())
    assert (steps.step, steps.per_s) == (5_900, 20.0)
    assert (steps.exactness, steps.pauses) == ("", False)
    with RunReader(counted(tmp_path / "b", 15_000)) as reader:
        assert pace_of(reader).steps() is None  # one count is no pace


async def test_the_header_shows_the_step_and_its_rate(tmp_path: Path) -> None:
    async with open_dashboard(counted(tmp_path / "a", 14_800, 14_900, 15_021, live=True)) as opened:
        for text in ("22.1/s", "step 15,021"):
            assert text in opened.text(Header)


@pytest.mark.parametrize(
    ("last", "since_s", "step", "exactness", "pauses"),
    [
        (300, 0.5, 310, "~", False),
        (300, 1.4, 328, "~", False),
        (300, 2.0, 300, "", False),
        (200, 0.5, 200, "", True),  # the count stands still
    ],
)
def test_the_step_goes_on_at_its_pace_for_ten_seconds(
    tmp_path: Path, last: int, since_s: float, step: int, exactness: str, pauses: bool
) -> None:
    with RunReader(counted(tmp_path / "a", 0, 100, 200, last, live=True)) as reader:
        steps = there(pace_of(reader, since_s).steps())
    assert (steps.step, steps.exactness, steps.pauses) == (step, exactness, pauses)


@pytest.mark.parametrize(("to_s", "per_s"), [(None, None), (24, 20.0)])
async def test_steps_are_unknown_once_nothing_counts_the_training(
    tmp_path: Path, to_s: int | None, per_s: float | None
) -> None:
    run = counted(tmp_path / "a", 0, 50, 100, 150, 900, 1_000, 1_100, live=True, lost_s=(15, to_s))
    with RunReader(run) as reader:
        pace = pace_of(reader)
        steps = there(pace.steps())
        (process,), begun_ns = reader.processes, reader.info.started_ns
        assert (steps.step, steps.per_s) == (None, per_s)
        assert pace.of_process(process, TimeRange(begun_ns, begun_ns + 30 * SECOND_NS)) is None
        assert pace.of_process(process, TimeRange(begun_ns, begun_ns + 14 * SECOND_NS)) == 10
        cells = pace.strip(Ruler(begun_ns, 5 * SECOND_NS, 6), None).cells
        assert [cell if cell is None else round(cell) for cell in cells[:4]] == [10, 10, None, None]
    async with open_dashboard(run) as opened:
        assert ("steps  20.0/s" in opened.text(Header)) == (to_s is not None)
        assert "step " not in opened.text(Header)


def test_the_pace_is_known_from_the_first_count_on_although_the_strip_was_drawn_before(
    tmp_path: Path,
) -> None:
    with (
        synthetic.live_run(tmp_path / "a", workers=0) as run,
        RunReader(run.path) as reader,
    ):
        pace = pace_of(reader)
        ruler = Ruler(run.started_ns, SECOND_NS, 12)
        assert set(pace.strip(ruler, None).cells) == {None}
        for second in range(5, 10):
            at_s = second + 0.5
            run.writer.put(synthetic.steps_counted(at_s, 20 * second, started_ns=run.started_ns))
        run.advance(5)
        reader.refresh()
        pace.catch_up(reader.events())
        cells = pace.strip(ruler, None).cells
    assert cells == (*(None,) * 6, *(20.0,) * 3, *(None,) * 3)


def test_what_was_drawn_as_a_pause_is_unknown_once_the_steps_are_said_to_be_lost(
    tmp_path: Path,
) -> None:
    with (
        synthetic.live_run(tmp_path / "a", workers=0) as run,
        RunReader(run.path) as reader,
    ):
        for second in range(10):
            made = 20 * min(second, 4)
            run.writer.put(synthetic.steps_counted(second, made, started_ns=run.started_ns))
        run.advance(5)
        reader.refresh()
        pace, ruler = pace_of(reader), Ruler(run.started_ns, SECOND_NS, 9)
        assert pace.strip(ruler, None).cells[:8] == (*(20.0,) * 4, *(0.0,) * 4)
        lost_ns = run.started_ns + 4 * SECOND_NS
        run.writer.put(EventHappened(lost_ns, EventKind.STEPS_LOST, "", synthetic.MAIN))
        run.advance()
        reader.refresh()
        pace.catch_up(reader.events())
        assert pace.strip(ruler, None).cells[:8] == (*(20.0,) * 3, *(None,) * 5)


async def test_an_ended_run_has_the_steps_that_its_summary_has(tmp_path: Path) -> None:
    run = counted(tmp_path / "a", 0, 100, 200, 260)
    with RunReader(run) as reader:
        made = take_steps(reader, Selection(), PhaseIndex(reader)).count
        whole = TimeRange(reader.info.started_ns, reader.info.end_ns)
        (process,) = reader.processes
        assert pace_of(reader).of_process(process, whole) == pytest.approx(260 / 15)
        assert pace_of(reader).of_process(process + 1, whole) is None
    assert made == 260
    async with open_dashboard(run) as opened:
        assert " 260 steps  17.3/s" in opened.text(Header)
        assert "step 260" not in opened.text(Header)
    async with open_dashboard(
        counted(tmp_path / "of_child", 0, 100, 200, 260, child_s=10)
    ) as opened:
        assert " at least 260 steps  17.3/s" in opened.text(Header)
    async with open_dashboard(synthetic.write_run(tmp_path / "b")) as opened:
        assert "step" not in opened.text(Header)  # nobody counted them
