"""Columns of time: stacks cut at their bounds."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, run_started
from support.training_stacks import BACKWARD, DATA_WAIT, describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import Grid, stack_times
from profd.daemon.store.writer import RunWriter


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
