from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from profd.daemon.clock import SECOND_NS
from profd.daemon.store import database
from profd.daemon.store.stackrollups import ENDED_LONG_AGO_NS, LAG_NS, MANY_PROCESSES, StackRollups

PROCESSES = 10 * MANY_PROCESSES


@pytest.fixture
def connection(tmp_path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(database.create(tmp_path / "run.profd"))


def test_processes_that_ended_are_not_kept_in_mind(connection: contextlib.closing[sqlite3.Connection]) -> None:
    with connection as store:
        sums = StackRollups(store, 0)
        for process in range(1, PROCESSES + 1):
            start_ns = process * 10 * SECOND_NS
            end_ns = start_ns + 5 * SECOND_NS
            store.execute(
                "INSERT INTO process (id, pid, start_ticks, command, role, seen_ns, ended_ns) VALUES (?,?,?,?,?,?,?)",
                (process, process, process, "[]", "worker", start_ns, end_ns),
            )
            sums.recorded(process, start_ns, end_ns, [])
            sums.settle(end_ns + LAG_NS)
            ended_lately = ENDED_LONG_AGO_NS // (10 * SECOND_NS) + 2
            assert len(sums._summed) <= MANY_PROCESSES + 2 * ended_lately
        (summed,) = store.execute("SELECT count(*) FROM summed_process").fetchone()

    assert summed == PROCESSES
