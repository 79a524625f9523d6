"""A run as a whole: what of it cannot be is said, before anybody counts its minutes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.synthetic import STARTED_NS, write_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader

YEAR_NS = 366 * 86400 * SECOND_NS


def ends_at(path: Path, ended_ns: int) -> Path:
    write_run(path, seconds=1, workers=0)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'ended_ns'", (ended_ns,))
    connection.close()
    return path


@pytest.mark.parametrize("ended_ns", [STARTED_NS, STARTED_NS + 10 * YEAR_NS])
def test_a_run_may_be_short_or_last_for_years(tmp_path: Path, ended_ns: int) -> None:
    with RunReader(ends_at(tmp_path / "run.profd", ended_ns)) as reader:
        assert reader.info.end_ns == ended_ns


@pytest.mark.parametrize("ended_ns", [STARTED_NS - 1, STARTED_NS + 10 * YEAR_NS + 1])
def test_a_run_that_ends_before_it_starts_or_never_is_damaged(tmp_path: Path, ended_ns: int) -> None:
    with pytest.raises(RunUnreadable, match="ends before it starts, or ten years later"):
        RunReader(ends_at(tmp_path / "run.profd", ended_ns))
