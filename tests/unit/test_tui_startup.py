"""The hot functions of a run that trains are those of the training: what it imported does not stand among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import HEALTHY, IMPORT, write_case
from synthetic import STARTED_NS
from theater import play

from profd.daemon.analyze.functions import hot_functions
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.tabs import TabLine

IMPORTING = IMPORT[-1].function


async def test_shares_are_of_the_training_and_that_is_said(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 40, *[HEALTHY] * 60, seconds=100)
    training = Selection(from_ns=STARTED_NS + 40 * SECOND_NS, main_threads=True)
    async with play(path, size=(160, 36)) as theater:
        shown = {row.function: (row.self_share, row.self_samples) for row in theater.widget(HotTable).rows}
        assert IMPORTING not in shown
        assert "main threads, startup aside · whole run" in theater.text(TabLine)
        assert "6,000 samples" in theater.text(TabLine)
        with RunReader(path) as reader:
            rows = hot_functions(reader, take_profile(reader, training))
        assert {name: share for name, (share, _) in shown.items()} == pytest.approx(
            {row.function: row.self_share for row in rows}
        )


async def test_where_nothing_trains_startup_is_what_there_is(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 20, *[HEALTHY] * 10, seconds=30)
    async with play(path) as theater:
        theater.dashboard.choose_range(STARTED_NS, STARTED_NS + 20 * SECOND_NS)
        await theater.snapshot(lambda snapshot: snapshot.view.chosen is not None)
        assert IMPORTING in [row.function for row in theater.widget(HotTable).rows]
        assert "startup aside" not in theater.text(TabLine)


async def test_all_threads_are_counted_with_all_that_they_did(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 20, *[HEALTHY] * 10, seconds=30)
    async with play(path) as theater:
        await theater.press("t")
        found = await theater.snapshot(lambda snapshot: snapshot.scope_name == "all threads")
        assert IMPORTING in [row.function for row in found.functions]
        with RunReader(path) as reader:
            assert take_profile(reader, MAIN_THREADS).total_samples <= found.samples
