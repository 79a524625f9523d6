"""GPUs in the run file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from support.synthetic import STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import DeviceSeen, Identity, Point, PointsTaken
from profd.daemon.store.rows import DeviceRow
from profd.daemon.store.writer import RunWriter

SECOND = DeviceSeen(STARTED_NS + 1, "gpu1", 1, "NVIDIA A100", "GPU-b")
FIRST = DeviceSeen(STARTED_NS + 2, "gpu0", 0, "NVIDIA H100", "GPU-a", 80 << 30)


def write(path: Path) -> Path:
    writer = RunWriter(path, run_started(), describe)
    for record in (SECOND, FIRST, FIRST):
        writer.put(record)
    process = Point("gpu_process_memory_bytes", 5.0, Identity(7, 1), device="gpu0")
    writer.put(PointsTaken(STARTED_NS + 3, (Point("gpu_memory_used_bytes", 9.0, device="gpu0"), process)))
    writer.close()
    return path


def test_devices_come_in_order_and_once(tmp_path: Path) -> None:
    with RunReader(write(tmp_path / "run.profd")) as reader:
        assert reader.devices() == [
            DeviceRow("gpu0", 0, "NVIDIA H100", "GPU-a", 80 << 30),
            DeviceRow("gpu1", 1, "NVIDIA A100", "GPU-b", None),
        ]


def test_series_of_a_process_on_a_device_is_one_of_its_own(tmp_path: Path) -> None:
    with RunReader(write(tmp_path / "run.profd")) as reader:
        series = {(row.name, row.process, row.device) for row in reader.series.values()}
    assert series == {("gpu_memory_used_bytes", None, "gpu0"), ("gpu_process_memory_bytes", 1, "gpu0")}


def test_file_from_before_there_were_devices_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "run.profd")
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE device")
    connection.commit()
    connection.close()
    with RunReader(path) as reader:
        assert reader.devices() == []
