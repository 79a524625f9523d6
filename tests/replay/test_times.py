"""When samples are said to be taken, against the diary of a program that notes each of its turns."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from support.recordinglines import Diary, PySpyRecord, read_lines
from support.recordings import recording_file, recording_names, replay

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.stacks import pyspy
from profd.daemon.stacks.pyspy import read_output
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import IntervalRow

# A stay is first seen one distance of samples after it began.
MOST_EARLY_NS = 10 * MILLISECOND_NS
MOST_LATE_NS = 10 * MILLISECOND_NS
MEDIAN_NS = (0, 10 * MILLISECOND_NS)


class Stay(NamedTuple):
    """The program was in a function from one time to another."""

    function: str
    enter_ns: int
    leave_ns: int


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunReader, Diary]]:
    run_file = tmp_path_factory.mktemp("turns") / "run.profd"
    diary = replay("turns", run_file)
    with RunReader(run_file) as reader:
        yield reader, diary


def stays(diary: Diary) -> list[Stay]:
    (track,) = diary.tracks
    return [
        Stay(diary.turns[turn % len(diary.turns)], enter_ns, leave_ns)
        for turn, (enter_ns, leave_ns) in enumerate(pairwise(track))
    ]


def seen(reader: RunReader, diary: Diary) -> Iterator[tuple[IntervalRow, str]]:
    """Yield the main thread's intervals in the order of the file, each with the turn that its stack
    shows.
    """
    for interval in reader.intervals(threads=[thread.id for thread in reader.main_threads()]):
        functions = {frame.function for frame in reader.frames_of(interval.stack)}
        yield from ((interval, turn) for turn in diary.turns if turn in functions)


def changes(reader: RunReader, diary: Diary) -> Iterator[tuple[int, Stay]]:
    """Yield when each stack was first seen, with the stay in its function that is nearest to that.

    Where one recording takes over from another, an interval begins that was not read then but a
    sample before.
    """
    known = stays(diary)
    entered = [stay.enter_ns for stay in known]
    joints = {recording.start_ns for recording in reader.recordings()}
    for interval, turn in seen(reader, diary):
        at_ns = interval.start_ns
        if at_ns in joints or not known[0].enter_ns <= at_ns <= known[-1].enter_ns:
            continue
        place = bisect_right(entered, at_ns)
        near = [stay for stay in known[max(place - 12, 0) : place + 12] if stay.function == turn]
        yield (
            at_ns,
            min(near, key=lambda stay: max(stay.enter_ns - at_ns, at_ns - stay.leave_ns, 0)),
        )


def test_samples_are_stamped_when_they_were_taken(run: tuple[RunReader, Diary]) -> None:
    found = list(changes(*run))
    assert len(found) > 200
    assert max(stay.enter_ns - at_ns for at_ns, stay in found) <= MOST_EARLY_NS
    assert max(at_ns - stay.leave_ns for at_ns, stay in found) <= MOST_LATE_NS
    least, most = MEDIAN_NS
    assert least <= statistics.median(at_ns - stay.enter_ns for at_ns, stay in found) <= most


def test_intervals_are_in_order_and_cover_the_run_from_the_first_one_on(
    run: tuple[RunReader, Diary],
) -> None:
    reader, _ = run
    for (before, _), (after, _) in pairwise(seen(*run)):
        assert before.start_ns + before.duration_ns <= after.start_ns
    recordings = sorted(reader.recordings(), key=lambda one: one.start_ns)
    assert all(after.start_ns <= before.end_ns for before, after in pairwise(recordings))
    assert all(0 <= one.clock_error_ns < 50 * MILLISECOND_NS for one in recordings)


@pytest.mark.parametrize("name", recording_names())
def test_every_failed_read_has_its_time_and_its_thread(name: str) -> None:
    for line in read_lines(recording_file(name)):
        if not isinstance(line, PySpyRecord) or not line.output.trace:
            continue
        raw = read_output(line.output)
        threads = {trace.ident: trace.changes[-1].at_us for trace in pyspy.decode(raw.data)}
        error_us = raw.clock_error_ns // 1000
        assert len(raw.failed) <= raw.errors
        for one in raw.failed:
            at_us = (one.at_ns - raw.zero_ns) // 1000
            assert one.ident is None or one.ident in threads
            assert -error_us <= at_us <= max(threads.values()) + error_us
