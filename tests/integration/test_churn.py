"""Processes that start and exit all the time keep nobody else from being sampled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sessions import record, running

from profd.daemon.analyze.coverage import take_coverage
from profd.daemon.analyze.lives import take_lives
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader

CHURNING = Path(__file__).parents[2] / "benchmarks" / "loads" / "churning.py"
SECONDS, PER_SECOND = 16, 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunReader]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFD_HOME", str(tmp_path_factory.mktemp("h")))
        with running(CHURNING, str(PER_SECOND)) as program, record(program.pid, SECONDS) as reader:
            yield reader


def test_processes_came_and_went(run: RunReader) -> None:
    ended = [process for process in run.processes.values() if process.ended_ns is not None]
    # A child that lives for a tenth of a second may come and go between two looks at the tree.
    assert len(ended) >= SECONDS * PER_SECOND / 2


def test_main_thread_is_covered(run: RunReader) -> None:
    share = take_coverage(run, Selection()).share
    assert share is not None
    assert share >= 0.99


def test_who_stays_is_sampled(run: RunReader) -> None:
    lives = take_lives(run)
    staying = [
        process.id
        for process in run.processes.values()
        if (process.ended_ns or run.info.end_ns) - process.seen_ns >= SECONDS / 2 * SECOND_NS
    ]
    assert len(staying) == 3
    assert [process for process in staying if not lives.cover(process).length_ns] == []


def test_nothing_went_wrong_or_was_lost(run: RunReader) -> None:
    assert [event.text for event in run.events() if event.kind in ("error", "loss")] == []
