"""How many cores there are, and how much of one a main thread had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import MAIN, PIN_TID, STARTED_NS, worker, write_run

from profd.daemon.analyze.series import machine_cores, main_thread_cores
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, Point, PointsTaken


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[RunReader]:
    """Give a run of a machine with three cores and a GPU, of which a helper thread has a series too."""
    devices = [
        Point("host_core_cpu_share", 0.5, device=name) for name in ("cpu0", "cpu1", "cpu10", "gpu0", "cpu1 of b")
    ]
    points = PointsTaken(STARTED_NS + SECOND_NS, (*devices, Point("cpu_cores", 9.0, MAIN, PIN_TID)))
    with RunReader(write_run(tmp_path / "a.profd", seconds=4, also=[points])) as reader:
        yield reader


def row_of(reader: RunReader, identity: Identity) -> int:
    return next(row.id for row in reader.processes.values() if row.pid == identity.pid)


def test_each_core_and_the_main_thread_alone_count_once(reader: RunReader) -> None:
    assert machine_cores(reader) == 3
    assert main_thread_cores(reader, row_of(reader, MAIN), None, None) == pytest.approx(0.6)
    assert main_thread_cores(reader, row_of(reader, worker(1)), None, None) == pytest.approx(0.97)
    assert main_thread_cores(reader, 999, None, None) is None


def test_cores_that_were_not_read_are_none(tmp_path: Path) -> None:
    with RunReader(write_run(tmp_path / "b.profd", seconds=1)) as reader:
        assert machine_cores(reader) == 0
