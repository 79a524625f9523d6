"""The samples of a part of a run, and its hot functions: known shares of a run that does the same each half second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.synthetic import STARTED_NS, write_run

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


@pytest.mark.parametrize("asked", [WHOLE, HALF])
def test_a_profile_is_that_of_the_summary(samples: Samples, reader: RunReader, asked: Range) -> None:
    mine = samples.profile(MAIN, asked)
    assert samples_in(samples.of_scope(MAIN, asked)) == mine.total_samples
    theirs = take_profile(reader, Selection(asked.from_ns, asked.to_ns, main_threads=True))
    assert mine.samples == theirs.samples
    assert mine.time_ns == pytest.approx(theirs.time_ns)
