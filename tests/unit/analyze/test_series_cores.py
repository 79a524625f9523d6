"""How many cores there are, and how much of one a main thread had."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import MAIN, PIN_TID, STARTED_NS, worker, write_run

from profd.daemon.analyze.series import machine_cores, main_thread_cores
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Point, PointsTaken
from profd.daemon.timerange import EVER


def test_each_core_and_the_main_thread_alone_count_once(tmp_path: Path) -> None:
    devices = [
        Point("host_core_cpu_share", 0.5, device=name)
        for name in ("cpu0", "cpu1", "cpu10", "gpu0", "cpu1 of b")
    ]
    of_a_helper = Point("cpu_cores", 9.0, MAIN, PIN_TID)
    points = PointsTaken(STARTED_NS + SECOND_NS, (*devices, of_a_helper))
    with RunReader(write_run(tmp_path / "a.profd", seconds=4, also=[points])) as reader:
        rows = {row.pid: row.id for row in reader.processes.values()}
        assert machine_cores(reader) == 3
        assert main_thread_cores(reader, rows[MAIN.pid], EVER) == pytest.approx(0.6)
        assert main_thread_cores(reader, rows[worker(1).pid], EVER) == pytest.approx(0.97)
        assert main_thread_cores(reader, 999, EVER) is None
    with RunReader(write_run(tmp_path / "b.profd", seconds=1)) as reader:
        assert machine_cores(reader) == 0  # they were not read
