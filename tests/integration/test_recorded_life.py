"""What is recorded of a program that keeps a diary: how much of its life, when, and in what order."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from sessions import record, running

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

SECONDS = 20
PHASES = ("busy_half", "asleep_third", "busy_rest")
# Of 200 ms a round: 100 busy, 60 asleep, 40 busy.
TRUE_SHARES = {"busy_half": 0.5, "asleep_third": 0.3, "busy_rest": 0.2}


class Entry(NamedTuple):
    """A line of the diary: the program was in ``function`` from ``enter_ns`` to ``leave_ns``."""

    enter_ns: int
    leave_ns: int
    function: str


class Run(NamedTuple):
    """A recorded run and the truth about it."""

    reader: RunReader
    diary: list[Entry]

    def seen(self) -> list[tuple[IntervalRow, str]]:
        """Return the main thread's intervals in the order of the file, each with the phase that its stack shows."""
        threads = [thread.id for thread in self.reader.main_threads()]
        seen = []
        for interval in self.reader.intervals(threads=threads):
            functions = [frame.function for frame in self.reader.frames_of(interval.stack)]
            phase = next((name for name in functions if name in PHASES), None)
            if phase is not None:
                seen.append((interval, phase))
        return seen

    def stays(self) -> list[tuple[int, Entry]]:
        """Return when each stack was read, with the stay in its phase that is nearest to that.

        Where one recording takes over from another, an interval begins that was not read then but a sample before; and
        what was read after the diary's last lines has no stay in it.
        """
        joints = {recording.start_ns for recording in self.reader.recordings()}
        found = []
        for interval, phase in self.seen():
            if interval.start_ns in joints or interval.start_ns > self.diary[-1].enter_ns:
                continue
            place = bisect_right(self.diary, (interval.start_ns,))
            near = [entry for entry in self.diary[max(place - 12, 0) : place + 12] if entry.function == phase]
            stay = min(
                near, key=lambda entry: max(entry.enter_ns - interval.start_ns, interval.start_ns - entry.leave_ns, 0)
            )
            found.append((interval.start_ns, stay))
        return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    diary = tmp_path_factory.mktemp("diary") / "diary"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROFD_HOME", str(tmp_path_factory.mktemp("h")))
        with running("known_phases.py", diary) as program:
            reader = record(program.pid, SECONDS)
    return Run(reader, read_diary(diary))


def read_diary(path: Path) -> list[Entry]:
    lines = [line.split() for line in path.read_text().splitlines()[:-1]]
    return [Entry(int(enter), int(leave), function) for function, enter, leave in lines]


def test_samples_cover_the_main_thread_from_the_first_one_on(run: Run) -> None:
    covered, reached = 0, 0
    recordings = run.reader.recordings()
    for recording in recordings:
        covered += max(recording.end_ns - max(recording.start_ns, reached), 0)
        reached = max(reached, recording.end_ns)
    assert covered / (run.reader.info.end_ns - recordings[0].start_ns) >= 0.99
    assert recordings[0].start_ns - run.reader.info.started_ns < 1_000 * MILLISECOND_NS


def test_samples_are_as_many_as_asked_for(run: Run) -> None:
    taken = sum(interval.samples for interval, _ in run.seen())
    # Poisson: of 2,000 expected, four standard deviations; a sampler that shares its core comes late now and then.
    assert SECONDS * 100 * 0.85 <= taken <= SECONDS * 100 * 1.09


def test_no_sample_is_stamped_more_than_ten_milliseconds_before_it_was_taken(run: Run) -> None:
    early = [stay.enter_ns - at_ns for at_ns, stay in run.stays() if at_ns < stay.enter_ns - 10 * MILLISECOND_NS]
    assert not early, f"{len(early)} samples are early by up to {max(early) / 1e6:.1f} ms"


def test_no_sample_is_stamped_more_than_ten_milliseconds_after_it_was_taken(run: Run) -> None:
    stays = run.stays()
    assert len(stays) > 200
    late = [at_ns - stay.leave_ns for at_ns, stay in stays if at_ns > stay.leave_ns + 10 * MILLISECOND_NS]
    assert not late, f"{len(late)} of {len(stays)} samples are late by up to {max(late) / 1e6:.1f} ms"


def test_the_clock_of_the_samples_is_that_of_the_program(run: Run) -> None:
    # A stay is first seen one distance of samples after it began, half of the time within 7 ms. A clock that
    # is wrong by ten milliseconds moves the median out of here.
    median_ns = statistics.median(at_ns - stay.enter_ns for at_ns, stay in run.stays())
    assert 0 <= median_ns <= 15 * MILLISECOND_NS


def test_samples_are_in_order_and_do_not_overlap(run: Run) -> None:
    intervals = [interval for interval, _ in run.seen()]
    for before, after in pairwise(intervals):
        assert before.start_ns + before.duration_ns <= after.start_ns


def test_shares_are_those_of_the_program(run: Run) -> None:
    total = sum(interval.samples for interval, _ in run.seen())
    for phase, share in TRUE_SHARES.items():
        measured = sum(interval.samples for interval, seen in run.seen() if seen == phase) / total
        # Four standard deviations of a share of 2,000 independent samples; the truth itself moves with the load.
        assert measured == pytest.approx(share, abs=0.045), phase


def test_the_file_says_how_true_its_times_are(run: Run) -> None:
    errors = [recording.clock_error_ns for recording in run.reader.recordings()]
    assert all(0 <= error < 50 * MILLISECOND_NS for error in errors)
