"""What is asked of a reader while its run grows: the sums and what lies beside them are all that its intervals say."""

from __future__ import annotations

import random
from pathlib import Path

import longrun
from longrun import STARTED_NS

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken, RecordingTaken
from profd.daemon.store.rollups import LEAST_MINUTES
from profd.daemon.store.rows import StackTotal
from profd.daemon.store.tables import Tables

MINUTE_S = 60


def at(second: int) -> int:
    return STARTED_NS + second * SECOND_NS


def by_stack(totals: list[StackTotal]) -> list[tuple[int, int, int, int]]:
    return sorted((row.thread, row.stack, row.samples, row.duration_ns) for row in totals)


def test_a_range_is_split_into_whole_minutes_and_what_lies_beside(live: Tables, tmp_path: Path) -> None:
    live.commit([longrun.recording(0, at(second), random.Random(1)) for second in range(0, 300, 10)])
    live.finish()
    with RunReader(tmp_path / "live.profd") as reader:
        [one] = reader.rollups.split(at(30), at(270), reader.threads)
        assert (one.minutes, one.is_settled) == (range(1, 4), True)
        assert [(rest.from_ns, rest.to_ns) for rest in one.rest] == [(at(30), at(60)), (at(240), at(270))]
        [short] = reader.rollups.split(at(59), at(59 + LEAST_MINUTES * MINUTE_S), reader.threads)
        assert not short.minutes
        [whole] = reader.rollups.split(None, None, reader.threads)
        assert not whole.rest


def test_a_reader_that_is_asked_again_while_a_run_grows_misses_nothing(live: Tables, tmp_path: Path) -> None:
    live.commit([longrun.recording(0, at(second), random.Random(1)) for second in range(0, 200, 10)])
    chance = random.Random(4)
    late: list[RecordingTaken] = []
    with RunReader(tmp_path / "live.profd") as reader:
        for second in range(200, 800, 20):
            at_ns = at(second)
            taken = [longrun.recording(0, at_ns + part * SECOND_NS, chance) for part in (0, 10)]
            late = [taken.pop(), *late] if second in (400, 700) else late
            live.commit(taken)
            if second in (500, 720):
                live.commit([late.pop()])
            if second in (620, 640):  # it overlaps the one before
                live.commit([longrun.recording(0, at_ns + 15 * SECOND_NS, chance)])
            if second == 560:  # the sums begin anew
                live.commit([PointsTaken(at_ns, (Point("gpu_utilization_share", 1.0, device="gpu1"),))])
            if second % 40 == 0:  # all that was recorded is in the sums
                live.commit([PointsTaken(at_ns + 45 * SECOND_NS, (Point("host_cpu_share", 0.5),))])
            reader.refresh()
            for from_ns, to_ns in ((None, None), (at(90), None), (None, at_ns), (None, at(401))):
                found, expected = reader.totals(from_ns, to_ns), reader.stack_totals(from_ns, to_ns)
                assert by_stack(found) == by_stack(expected)
