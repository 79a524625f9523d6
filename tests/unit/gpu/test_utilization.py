"""How busy and how full a GPU is: the driver's samples, each at its time and once, and GPM metrics."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.gpusets import MAIN, GpuRoom, values
from support.gpusim import SimulatedDriver

MIB = 1 << 20
GPM = {1: 97, 2: 61, 3: 20, 5: 44, 10: 35, 20: 100, 21: 200, 60: 3, 61: 4}


@pytest.fixture
def hopper(driver: SimulatedDriver) -> GpuRoom:
    driver.add_gpu()
    for number, value in GPM.items():
        driver.add("gpm", value, "gpu0", number)
    return GpuRoom(driver, everything=True)


def test_metrics_are_means_between_two_readings(hopper: GpuRoom, driver: SimulatedDriver) -> None:
    hopper.read(1)
    driver.add("gpm", 20, "gpu0", 5, at_s=1.25)
    read = values(hopper.read_fully(1))
    assert read["gpu_tensor_active_share"] == pytest.approx(0.26)
    assert read["gpu_sm_active_share"] == pytest.approx(0.61)
    assert read["gpu_dram_bandwidth_share"] == pytest.approx(0.35)
    assert values(hopper.read_fully(1))["gpu_tensor_active_share"] == pytest.approx(0.2)


def test_metrics_tell_the_traffic_too(hopper: GpuRoom, driver: SimulatedDriver) -> None:
    hopper.read(1)
    driver.calls()
    read = values(hopper.read_fully(1))
    assert read["gpu_pcie_sent_bytes_per_s"] == 100 * MIB
    assert read["gpu_nvlink_sent_bytes_per_s"] == 4 * MIB
    assert not [call for call in driver.calls() if "Throughput" in call or "FieldValues" in call]


def test_metric_that_the_device_lacks_is_missing(driver: SimulatedDriver) -> None:
    driver.add_gpu()
    driver.add("gpm", 44, "gpu0", 5)
    room = GpuRoom(driver, everything=True)
    room.read()
    assert values(room.read_fully(1)) == {"gpu_tensor_active_share": pytest.approx(0.44)}


def test_device_without_metrics_is_asked_for_them_once(driver: SimulatedDriver) -> None:
    driver.add_gpu()
    room = GpuRoom(driver, everything=True)
    driver.calls()
    room.go_on(3)
    assert [call for call in driver.calls() if "Gpm" in call] == ["nvmlGpmQueryDeviceSupport gpu0"]


def test_snapshots_are_given_back(hopper: GpuRoom, driver: SimulatedDriver) -> None:
    hopper.read()
    taken = sum(call.startswith("nvmlGpmSampleAlloc") for call in driver.calls())
    hopper.source.close()
    assert driver.calls() == ["nvmlGpmSampleFree"] * taken + ["nvmlShutdown"]


UTILIZATION = "gpu_utilization_share"


@pytest.fixture
def room(driver: SimulatedDriver) -> GpuRoom:
    driver.add_gpu(sample_period_s=0.25, utilization_share=1)
    driver.add("utilization_share", 0, "gpu0", at_s=2)
    driver.add("utilization_share", 1, "gpu0", at_s=2.5)
    return GpuRoom(driver, everything=True)


def test_every_sample_is_read_once(room: GpuRoom) -> None:
    for after_s in (0.3, 1.7, 0.1, 0.9, 2):
        room.read(after_s)
    assert [at_s for at_s, _ in room.series(UTILIZATION)] == pytest.approx(
        [n / 4 for n in range(1, 21)], abs=0.02
    )


def test_a_driver_that_gives_all_it_has_each_time(room: GpuRoom, driver: SimulatedDriver) -> None:
    driver.add("repeats_samples", 1, "gpu0")
    room.go_on(4)
    assert [at_s for at_s, _ in room.series(UTILIZATION)] == pytest.approx(
        [n / 4 for n in range(1, 17)], abs=0.02
    )
    assert [share for _, share in room.series(UTILIZATION)] == pytest.approx(
        [1] * 8 + [0] * 2 + [1] * 6
    )


def test_no_sample_is_lost_where_the_driver_is_opened_anew(room: GpuRoom) -> None:
    room.go_on(3)
    room.clock.advance(2)
    room.reopen()
    room.read()
    room.read(3)
    assert [at_s for at_s, _ in room.series(UTILIZATION)] == pytest.approx(
        [n / 4 for n in range(1, 33)], abs=0.02
    )


def test_a_buffer_that_is_dry_means_an_idle_gpu_as_far_back_as_someone_looked(
    driver: SimulatedDriver,
) -> None:
    driver.add_gpu(sample_period_s=0.25, utilization_share=1, dry_after_s=0.5)
    driver.add("utilization_share", 0, "gpu0", at_s=4)
    room = GpuRoom(driver, everything=True)
    room.go_on(10)
    idle = [at_s for at_s, share in room.series(UTILIZATION) if share == 0 and at_s <= 10]
    assert max(after - before for before, after in pairwise([4.0, *idle, 10.0])) <= 0.75
    room.clock.advance(3600)
    room.taken.clear()
    room.read(1)
    assert len(room.series(UTILIZATION)) <= 20


def test_a_gpu_is_read_from_the_second_on_in_which_the_run_came_to_it(
    driver: SimulatedDriver,
) -> None:
    driver.add_gpu(sample_period_s=0.25, utilization_share=1)
    room = GpuRoom(driver)
    room.read(9)
    room.taken.clear()
    driver.add("process_memory_bytes", 1, "gpu0", MAIN.pid, at_s=9.5)
    room.read_fully(1)
    room.read(2)
    assert [at_s for at_s, _ in room.series(UTILIZATION)] == pytest.approx(
        [n / 4 for n in range(37, 49)], abs=0.02
    )


def test_a_driver_that_samples_often_does_not_flood_the_run(driver: SimulatedDriver) -> None:
    driver.add_gpu(sample_period_s=0.01, utilization_share=1)
    driver.add("utilization_share", 0, "gpu0", at_s=2.5)
    room = GpuRoom(driver, everything=True)
    room.read(0.01)
    room.read(2)
    room.taken.clear()
    room.read(1)
    shares = dict(room.series(UTILIZATION))
    assert len(shares) == 20
    assert sum(shares.values()) / 20 == pytest.approx(0.5, abs=0.03)


def test_without_a_buffer_one_reading_stands_for_the_second(driver: SimulatedDriver) -> None:
    driver.add_gpu(utilization_now_share=0.42)
    room = GpuRoom(driver, everything=True)
    room.go_on(2)
    assert room.series(UTILIZATION) == [(1, 0.42), (2, 0.42)]
    assert [remark.partition(" (")[0] for remark in room.remarks] == [
        "gpu0: utilization is the driver's current value, once a second"
    ]
