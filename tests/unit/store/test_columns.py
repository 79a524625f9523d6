"""Columns of time: the mean of a series, on points whose distances are known, and stacks cut at their bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, run_started
from support.training_stacks import BACKWARD, DATA_WAIT, describe

from profd.daemon.analyze.coverage import mean_of_series
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.columns import Grid, stack_times
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.store.writer import RunWriter


def test_a_point_counts_for_the_time_since_the_one_before(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run.profd", run_started(), describe)
    # What starting took, in the first tenth of a second; then a tenth of a core for nearly ten.
    for at_s, cores in ((0.1, 1.0), (1.0, 0.1), (10.0, 0.1)):
        at_ns = STARTED_NS + round(at_s * SECOND_NS)
        assert writer.put(PointsTaken(at_ns, (Point("profd_cpu_cores", cores),)))
    writer.close()
    with RunReader(tmp_path / "run.profd") as reader:
        mean = mean_of_series(reader, "profd_cpu_cores", None, Selection())
    assert mean == pytest.approx((0.1 * 1.0 + 9.9 * 0.1) / 10)


def test_an_interval_is_cut_at_the_bounds_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "run.profd"
    writer = RunWriter(path, run_started(), describe)
    thread = (MAIN_TID, "MainThread", True, ((DATA_WAIT, 500), (BACKWARD, 2500)))
    for record in (main_process(), recording(MAIN, STARTED_NS, (thread,), duration_ns=3 * SECOND_NS)):
        assert writer.put(record)
    writer.close()
    with RunReader(path) as reader:
        found = stack_times(reader, Grid(STARTED_NS, SECOND_NS), 0, 5, [1])
        later = stack_times(reader, Grid(STARTED_NS, SECOND_NS), 2, 5, [1])
    half = SECOND_NS // 2
    assert sorted((one.column, one.time_ns) for one in found) == [(0, half), (0, half), (1, SECOND_NS), (2, SECOND_NS)]
    assert [(one.column, one.time_ns) for one in later] == [(2, SECOND_NS)]
