"""Rows that no profd writes: each is refused with its reason where it is read, and never breaks what reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support import synthetic

from profd.daemon.errors import RunUnreadable
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import WindowTaken


@pytest.mark.parametrize(
    ("change", "read", "meant"),
    [
        ("UPDATE window SET process = 99", lambda run: run.windows(), "names a process"),
        ("UPDATE recording SET process = 99", lambda run: run.recordings(), "names a process"),
        ("UPDATE recording SET process = 99", lambda run: run.recordings_after(0, 9), "names a process"),
        ("UPDATE window SET trace = 7", lambda run: run.window_trace(1), "Expected"),
        (f"UPDATE interval SET duration_ns = {1 << 62}", lambda run: list(run.intervals()), "Expected"),
    ],
)
def test_it_is_refused(tmp_path: Path, change: str, read: Callable[[RunReader], object], meant: str) -> None:
    path = tmp_path / "a.profd"
    window = WindowTaken(synthetic.MAIN, synthetic.STARTED_NS, "kineto", synthetic.STARTED_NS)
    synthetic.write_run(path, seconds=3, also=[window])
    with RunReader(path) as run:
        read(run)
    with sqlite3.connect(path) as connection:
        assert connection.execute(change).rowcount > 0
    connection.close()
    with RunReader(path) as run, pytest.raises(RunUnreadable, match=meant):
        read(run)
