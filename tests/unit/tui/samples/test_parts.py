"""The samples of a part of a run, and its hot functions: known shares of a run that does the same each half second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import MAIN_TID, STARTED_NS, write_run

from profd.daemon.analyze.lives import take_lives
from profd.daemon.analyze.phases import STARTUP, PhaseIndex
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.tui.samples.parts import Samples, selection, training
from profd.tui.samples.tallies import Places
from profd.tui.view import Range, Scope, ScopeKind

SECONDS = 20
MAIN, ALL = Scope(), Scope(ScopeKind.ALL)
WHOLE = Range(STARTED_NS, STARTED_NS + SECONDS * SECOND_NS)
HALF = Range(STARTED_NS + 5 * SECOND_NS, STARTED_NS + 15 * SECOND_NS)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    with RunReader(write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        yield reader


@pytest.fixture
def samples(reader: RunReader) -> Samples:
    return Samples(reader, take_lives(reader))


def test_a_scope_has_the_samples_of_its_threads(samples: Samples, reader: RunReader) -> None:
    # Two threads of the main process, and one of each worker.
    assert samples.of_scope(MAIN, WHOLE).samples == 100 * SECONDS
    assert samples.of_scope(ALL, WHOLE).samples == 4 * 100 * SECONDS
    assert samples.of_scope(MAIN, HALF).samples == 100 * 10
    main = next(row for row in reader.threads.values() if row.os_tid == MAIN_TID)
    process = Scope(ScopeKind.PROCESS, main.process)
    assert samples.of_scope(process, WHOLE).samples == 2 * 100 * SECONDS
    times = samples.take(WHOLE).of_threads()
    assert sum(times[main.id].values()) == SECONDS * SECOND_NS
    assert times.keys() == reader.threads.keys()


@pytest.mark.parametrize("asked", [WHOLE, HALF])
def test_a_profile_is_that_of_the_summary(samples: Samples, reader: RunReader, asked: Range) -> None:
    mine, part = samples.profile(MAIN, asked)
    assert part.samples == mine.total_samples
    theirs = take_profile(reader, Selection(asked.from_ns, asked.to_ns, main_threads=True))
    assert mine.samples == theirs.samples
    assert mine.time_ns == pytest.approx(theirs.time_ns)


def test_hot_functions_have_their_shares(samples: Samples, reader: RunReader) -> None:
    hot = samples.hot(MAIN, WHOLE, Places(PhaseIndex(reader)), by_line=False)
    assert (hot.samples, hot.is_without_startup) == (100 * SECONDS, False)
    assert sum(row.self_share for row in hot.rows) == pytest.approx(1.0)
    assert [row.self_share for row in hot.rows] == sorted((row.self_share for row in hot.rows), reverse=True)


def test_a_scope_stands_for_a_selection() -> None:
    assert selection(MAIN) == MAIN_THREADS
    assert selection(ALL) == Selection()
    assert selection(Scope(ScopeKind.PROCESS, 3)) == Selection(processes=frozenset({3}))


class Phases(Places):
    """Gives each stack the phase that a test says."""

    def __init__(self, *phases: str) -> None:
        self._given = dict(enumerate(phases, 1))

    def of_stack(self, stack: int) -> tuple[str, int]:
        return self._given[stack], 0


def test_startup_is_left_out_of_a_training_and_of_nothing_else() -> None:
    profile = Profile({1: 10, 2: 30}, {1: 1e9, 2: 3e9})
    kept = training(profile, Phases(STARTUP, "forward"))
    assert (kept.samples, kept.time_ns) == ({2: 30}, {2: 3e9})
    assert training(profile, Phases(STARTUP, "other")) is profile
    assert training(profile, Phases("data wait", "forward")) is profile
