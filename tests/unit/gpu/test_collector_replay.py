"""A recorded run, replayed by the fake driver, gives the same readings again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fakedriver import FakeDriver
from support.gpureplay import rows_of
from support.gpusets import MAIN, GpuRoom
from support.synthetic import STARTED_NS, run_started
from support.training_stacks import describe

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import DeviceSeen, Point, PointsTaken
from profd.daemon.store.writer import RunWriter

SAMPLES = [(0.4, 1.0), (0.9, 0.25), (1.6, 0.0), (2.8, 0.97)]
GAUGES = {"gpu_memory_used_bytes": 5e9, "gpu_power_watts": 212.5, "gpu_temperature_celsius": 61.0}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Write a run of three seconds with a GPU."""
    path = tmp_path / "run.profd"
    writer = RunWriter(path, run_started(), describe)
    writer.put(DeviceSeen(STARTED_NS, "gpu0", 0, "NVIDIA H100", "GPU-a"))
    for at_s, share in SAMPLES:
        point = Point("gpu_utilization_share", share, device="gpu0")
        writer.put(PointsTaken(STARTED_NS + round(at_s * SECOND_NS), (point,)))
    for second in range(4):
        points = [Point(name, value + second, device="gpu0") for name, value in GAUGES.items()]
        points.append(Point("gpu_tensor_active_share", second / 10, device="gpu0"))
        points.append(Point("gpu_process_memory_bytes", 3e9, MAIN, device="gpu0"))
        points.append(Point("gpu_memory_total_bytes", 80e9, device="gpu0"))
        writer.put(PointsTaken(STARTED_NS + second * SECOND_NS, tuple(points)))
    writer.close()
    return path


def test_replay_gives_what_was_recorded(recorded: Path, driver: FakeDriver) -> None:
    with RunReader(recorded) as reader, driver.scenario.open("a") as scenario:
        scenario.writelines(",".join(map(str, row)) + "\n" for row in rows_of(reader))
    room = GpuRoom(driver)
    assert room.start_ns == STARTED_NS
    room.read()
    for _ in range(3):
        room.read_fully(1)
    assert room.devices[0].model == "NVIDIA H100"
    assert room.series("gpu_utilization_share") == [pytest.approx(sample) for sample in SAMPLES]
    quick, calm = room.series("gpu_memory_used_bytes"), room.series("gpu_temperature_celsius")
    assert quick[::2] == [pytest.approx((second, 5e9 + second)) for second in range(4)]
    assert calm == [pytest.approx((0, 61)), pytest.approx((2.5, 63))]
    assert [share for _, share in room.series("gpu_tensor_active_share")] == pytest.approx([0.1, 0.2, 0.3])
    assert room.series("gpu_process_memory_bytes") == [(second, 3e9) for second in range(4)]
