"""The hot functions of a run that trains are those of the training, without what it imported; leaving to the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dashboard import open_dashboard
from support.findingruns import HEALTHY, IMPORT, write_case
from support.synthetic import STARTED_NS

from profd.daemon.analyze.functions import hot_functions
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.tui import app
from profd.tui.widgets.hot import HotTable
from profd.tui.widgets.tabs import TabLine

IMPORTING = IMPORT[-1].function


async def test_shares_are_of_the_training_and_that_is_said(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 40, *[HEALTHY] * 60, seconds=100)
    training = Selection(from_ns=STARTED_NS + 40 * SECOND_NS, main_threads=True)
    async with open_dashboard(path, size=(160, 36)) as opened:
        shown = {row.function: (row.self_share, row.self_samples) for row in opened.widget(HotTable).rows}
        assert IMPORTING not in shown
        assert "main threads, startup aside · whole run" in opened.text(TabLine)
        assert "6,000 samples" in opened.text(TabLine)
        with RunReader(path) as reader:
            rows = hot_functions(reader, take_profile(reader, training))
        assert {name: share for name, (share, _) in shown.items()} == pytest.approx(
            {row.function: row.self_share for row in rows}
        )


async def test_where_nothing_trains_startup_is_what_there_is(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", *[((IMPORT, 500),)] * 20, *[HEALTHY] * 10, seconds=30)
    async with open_dashboard(path) as opened:
        await opened.press("t")  # all threads are counted with all that they did
        found = await opened.snapshot(lambda snapshot: snapshot.scope_name == "all threads")
        assert IMPORTING in [row.function for row in found.functions]
        with RunReader(path) as reader:
            assert take_profile(reader, MAIN_THREADS).total_samples <= found.samples

        await opened.press("t", "t")
        opened.dashboard.choose_range(STARTED_NS, STARTED_NS + 20 * SECOND_NS)
        await opened.snapshot(lambda snapshot: snapshot.view.chosen is not None)
        assert IMPORTING in [row.function for row in opened.widget(HotTable).rows]
        assert "startup aside" not in opened.text(TabLine)


async def test_the_key_for_the_shell_says_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "has_shell", lambda: False)
    async with open_dashboard(write_case(tmp_path / "a.profd", *[HEALTHY] * 2, seconds=2)) as opened:
        await opened.press("ctrl+z")
        await opened.until_notice("there is no shell")
