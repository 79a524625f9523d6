"""The readings of a report, as its page carries them."""

from __future__ import annotations

import itertools
from pathlib import Path

from support import synthetic

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.extract import take_extract
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken


def counted(second: int, steps: int) -> PointsTaken:
    """Return a reading of the loop counter."""
    return PointsTaken(synthetic.STARTED_NS + second * SECOND_NS, (Point("step_count", steps, synthetic.MAIN),))


def paces(path: Path, *readings: tuple[int, int]) -> list[tuple[int, float]]:
    """Return (milliseconds, steps a second) of a run's chart, of readings of (second, steps)."""
    synthetic.write_run(path, workers=0, also=[counted(*reading) for reading in readings])
    with RunReader(path) as reader:
        series = take_extract(reader, PhaseIndex(reader), ()).processes[0].steps_per_s
    times_ms = itertools.accumulate(series.steps_ms)
    return [(at_ms, value / 10**series.digits) for at_ms, value in zip(times_ms, series.values, strict=True)]


def test_the_pace_of_the_steps_begins_with_the_first_reading(tmp_path: Path) -> None:
    """Each value is that of the time since the one before: the first one's is none."""
    assert paces(tmp_path / "run.profd", (4, 8), (6, 12), (10, 40)) == [(4_000, 0.0), (6_000, 2.0), (10_000, 7.0)]


def test_a_counter_that_starts_again_tells_no_pace(tmp_path: Path) -> None:
    assert paces(tmp_path / "run.profd", (4, 8), (6, 3), (8, 13)) == [(4_000, 0.0), (8_000, 5.0)]


def test_a_single_reading_tells_no_pace(tmp_path: Path) -> None:
    assert paces(tmp_path / "run.profd", (4, 8)) == []
