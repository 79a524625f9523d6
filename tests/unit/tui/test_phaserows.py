"""The phases of main threads by column, of a run that does the same each half second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support import rankrun, synthetic
from support.synthetic import PHASE_SHARES, STARTED_NS

from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS, leading_threads, led_by
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.tui.columns import Ruler
from profd.tui.phaserows import PhaseRows
from profd.tui.snapshot import PhaseShares

SECONDS = 24
WHOLE = Ruler.filling(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS, SECONDS)


def rows_of(reader: RunReader) -> PhaseRows:
    return PhaseRows(reader, PhaseIndex(reader))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS, workers=0)) as reader:
        yield reader


def test_each_column_has_the_shares_of_a_step(reader: RunReader) -> None:
    rows = rows_of(reader)
    (cells,) = rows.cells(WHOLE).values()
    assert len(cells) == SECONDS
    assert_shares(cells, error=1e-9)


def test_a_column_that_is_still_to_be_read_is_estimated_by_a_part_of_it(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(reader)
    monkeypatch.setattr(rows.columns, "take", lambda ruler: [None] * ruler.count)
    (cells,) = rows.cells(Ruler(STARTED_NS, 4 * SECOND_NS, SECONDS // 4)).values()
    assert_shares(cells, error=0.02)


def test_wide_columns_are_of_minutes(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=370, workers=0)) as reader:
        rows = rows_of(reader)
        (cells,) = rows.cells(Ruler.filling(STARTED_NS, reader.info.end_ns, 3)).values()
        assert not rows.columns.has_backlog
    assert_shares(cells, error=1e-9)


def assert_shares(cells: tuple[PhaseShares, ...], error: float) -> None:
    for cell in cells:
        assert cell == pytest.approx(PHASE_SHARES, abs=error)
        assert sum(cell.values()) == pytest.approx(1.0)


def test_a_mixture_has_the_order_of_the_phases_and_nothing_where_nothing_was_seen(
    reader: RunReader,
) -> None:
    (cells,) = rows_of(reader).cells(Ruler.filling(STARTED_NS, STARTED_NS + SECOND_NS, 1)).values()
    names = list(cells[0])
    assert names == [phase.name for phase in PHASES if phase.name in names]
    (cells,) = rows_of(reader).cells(Ruler(STARTED_NS - 2 * SECOND_NS, SECOND_NS, 4)).values()
    assert [bool(cell) for cell in cells] == [False, False, True, True]


def test_columns_in_which_more_was_recorded_are_read_again(tmp_path: Path) -> None:
    with (
        synthetic.live_run(tmp_path / "a.profd", seconds=2, workers=0) as run,
        RunReader(run.path) as reader,
    ):
        rows = rows_of(reader)
        ruler = Ruler(run.started_ns, SECOND_NS, 4)
        (before,) = rows.cells(ruler).values()
        newest = reader.recordings()[-1].id
        run.advance(2)
        reader.refresh()
        rows.add(reader.recordings_after(newest))
        (after,) = rows.cells(ruler).values()
    assert [bool(cell) for cell in before] == [True, True, False, False]
    assert [bool(cell) for cell in after] == [True] * 4
    assert after[:2] == before[:2]


def test_rows_are_called_and_ordered_by_rank_or_pid(
    reader: RunReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruler = Ruler(STARTED_NS, SECOND_NS, 4)
    assert [row.label for row in rows_of(reader).rows(ruler, {})] == ["main"]
    with RunReader(rankrun.write_run(tmp_path / "ranks.profd")) as ranks:
        assert [row.label for row in rows_of(ranks).rows(ruler, {})] == ["rank 0", "rank 1"]
        assert rows_of(ranks).rows(Ruler(STARTED_NS - 9 * SECOND_NS, SECOND_NS, 4), {}) == ()
        threads = sorted(rows_of(ranks).ids())
        mains = [ranks.processes[ranks.threads[thread].process] for thread in threads]
        for row, rank in zip(mains, (1, 0), strict=True):  # the other way round: they come by rank
            monkeypatch.setitem(ranks.processes, row.id, msgspec.structs.replace(row, rank=rank))
        rows = rows_of(ranks).rows(ruler, {mains[0].id: {}, mains[1].id: {"other": 1.0}})
        assert [(row.label, bool(row.shares)) for row in rows] == [
            ("rank 0", True),
            ("rank 1", False),
        ]
        for row in mains:
            monkeypatch.setitem(ranks.processes, row.id, msgspec.structs.replace(row, rank=None))
        assert [row.label for row in rows_of(ranks).rows(ruler, {})] == [
            str(row.pid) for row in mains
        ]
        for number, row in enumerate(mains, 1):
            monkeypatch.setitem(
                ranks.processes, row.id, msgspec.structs.replace(row, rank=None, ordinal=number)
            )
        assert [row.label for row in rows_of(ranks).rows(ruler, {})] == ["main 1", "main 2"]


def test_threads_of_a_process_that_led_in_turn_share_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunReader(rankrun.write_run(tmp_path / "ranks.profd")) as run:
        first, second = (run.threads[one] for one in sorted(rows_of(run).ids()))
        moved = msgspec.structs.replace(second, process=first.process)
        monkeypatch.setitem(run.threads, second.id, moved)
        (row,) = rows_of(run).rows(Ruler(STARTED_NS, SECOND_NS, 4), {})
    assert all(sum(cell.values()) == pytest.approx(1.0) for cell in row.cells if cell)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("MainThread",) * 2, "the main thread"),
        (("MainThread", "trainer"), "thread trainer"),
        (("pool_0", "pool_1"), "thread pool_0 or another of 2"),
    ],
)
def test_a_thread_that_leads_in_place_of_the_main_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], words: str
) -> None:
    with RunReader(rankrun.write_run(tmp_path / "ranks.profd")) as run:
        for thread, name in zip(sorted(rows_of(run).ids()), names, strict=True):
            row = msgspec.structs.replace(run.threads[thread], name=name)
            monkeypatch.setitem(run.threads, thread, row)
        assert led_by(leading_threads(run, MAIN_THREADS)) == words
