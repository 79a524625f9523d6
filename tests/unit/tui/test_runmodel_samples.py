"""The samples of a part of a run, and its hot functions: known shares of a run that does the same each half second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.synthetic import MAIN_TID, STARTED_NS, write_run

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import StackTotal
from profd.tui.runmodel import Samples
from profd.tui.view import Range

SECONDS = 20
MAIN, ALL = MAIN_THREADS, Selection()
WHOLE = Range(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS)
HALF = Range(STARTED_NS + 5 * SECOND_NS, STARTED_NS + 15 * SECOND_NS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        yield reader


@pytest.fixture
def samples(reader: RunReader) -> Samples:
    return Samples(reader, take_lives(reader))


def samples_in(totals: Sequence[StackTotal]) -> int:
    return sum(total.samples for total in totals)


def test_a_scope_has_the_samples_of_its_threads(samples: Samples, reader: RunReader) -> None:
    # Two threads of the main process, and one of each worker.
    assert samples_in(samples.of_scope(MAIN, WHOLE)) == 100 * SECONDS
    assert samples_in(samples.of_scope(ALL, WHOLE)) == 4 * 100 * SECONDS
    assert samples_in(samples.of_scope(MAIN, HALF)) == 100 * 10
    main = next(row for row in reader.threads.values() if row.os_tid == MAIN_TID)
    process = Selection(processes=frozenset({main.process}))
    assert samples_in(samples.of_scope(process, WHOLE)) == 2 * 100 * SECONDS
    totals = samples.totals(WHOLE)
    assert sum(total.duration_ns for total in totals if total.thread == main.id) == SECONDS * SECOND_NS
    assert {total.thread for total in totals} == reader.threads.keys()


@pytest.mark.parametrize("asked", [WHOLE, HALF])
def test_a_profile_is_that_of_the_summary(samples: Samples, reader: RunReader, asked: Range) -> None:
    mine = samples.profile(MAIN, asked)
    assert samples_in(samples.of_scope(MAIN, asked)) == mine.total_samples
    theirs = take_profile(reader, Selection(asked.from_ns, asked.to_ns, main_threads=True))
    assert mine.samples == theirs.samples
    assert mine.time_ns == pytest.approx(theirs.time_ns)


def test_hot_functions_have_their_shares(samples: Samples, reader: RunReader) -> None:
    rows = samples.hot(MAIN, WHOLE, by_line=False)
    assert sum(row.self_samples for row in rows) == 100 * SECONDS
    assert sum(row.self_share for row in rows) == pytest.approx(1.0)
    assert [row.self_share for row in rows] == sorted((row.self_share for row in rows), reverse=True)
