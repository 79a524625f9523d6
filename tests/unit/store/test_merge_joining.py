"""The rows of several run files in one: nothing of one node is taken for another's."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support import rankrun
from support.noderuns import AHEAD_NS, Job
from support.shiftedclocks import shift_clock

from profd.daemon.analyze.nodes import open_job, read_folder
from profd.daemon.errors import RunUnreadable
from profd.daemon.store.merge import JoinedNode, hosts_of, join_runs
from profd.daemon.store.reader import RunReader


def test_processes_series_windows_and_devices_of_nodes_stay_apart(tmp_path: Path) -> None:
    # Two nodes whose processes have the same PIDs and start times, and whose GPUs have the same
    # names.
    paths = [rankrun.write_run(tmp_path / f"{number}.profd") for number in range(2)]
    ahead_ns = 200 * AHEAD_NS
    shift_clock(paths[1], ahead_ns)
    nodes = [
        JoinedNode(0, "a", "run-a", 0, 0, "", 0),
        JoinedNode(1, "b", "run-b", ahead_ns, 1, "", 9),
    ]
    with RunReader(paths[0]) as one, RunReader(paths[1]) as other:
        join_runs([one, other], nodes, "both", tmp_path / "both.profd")
        listed = one.list_series()
        alone = {(row.name, row.device) for row in listed}
        alone_rows, windows = len(one.processes), one.windows()
        points = {row.name: len(one.points(row.id)) for row in listed if row.process is not None}
        operators, gaps = one.operators(windows[0].id), one.host_gaps(windows[0].id)
        gpus = one.window_gpus(windows[0].id)
        intervals = sorted((row.start_ns, row.duration_ns) for row in one.intervals())
    with RunReader(tmp_path / "both.profd") as both:
        assert len(both.processes) == 2 * alone_rows
        assert sorted(hosts_of(both).values()) == ["a"] * alone_rows + ["b"] * alone_rows
        assert {row.device.rpartition(" on ")[2] for row in both.list_series() if row.device} <= {
            "a",
            "b",
        }
        assert len(both.list_series()) == 2 * len(listed)
        assert {name for name, _ in alone} == {row.name for row in both.list_series()}
        for row in both.list_series():
            if row.process is not None:
                assert len(both.points(row.id)) == points[row.name]
        assert sorted((row.start_ns, row.duration_ns) for row in both.intervals()) == sorted(
            2 * intervals
        )
        assert [row.start_ns for row in both.windows()] == [windows[0].start_ns] * 2
        last = both.windows()[1].id
        assert (both.operators(last), both.window_gpus(last), both.host_gaps(last)) == (
            operators,
            gpus,
            gaps,
        )
        assert len(gaps) == len(gpus) == 1


def test_a_row_of_a_process_that_is_not_there_is_said(tmp_path: Path) -> None:
    path = rankrun.write_run(tmp_path / "a.profd")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO event VALUES (NULL, 5, 'note', 99, 'damaged')")
    node = JoinedNode(0, "a", "run-a", 0, 0, "", 0)
    with RunReader(path) as one, pytest.raises(RunUnreadable, match="names a process"):
        join_runs([one], [node], "one", tmp_path / "joined.profd")


def test_a_job_with_a_failed_node_has_failed(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    job = Job(steps=60)
    job.write(tmp_path / "job" / "a.profd", 0)
    failed = job.write(tmp_path / "job" / "b.profd", 1, own_share=0.9)
    with sqlite3.connect(failed) as connection:
        connection.execute("UPDATE meta SET value = 3 WHERE name = 'exit_code'")
    with open_job(read_folder(tmp_path / "job").choose(None)) as reader:
        assert (reader.info.state, reader.info.exit_code) == ("ended", 3)
