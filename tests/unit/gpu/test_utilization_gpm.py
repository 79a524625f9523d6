"""How full a GPU is, and what it sends: GPM metrics, else counters, else what the driver measures when asked."""

from __future__ import annotations

import pytest
from support.fakedriver import FakeDriver
from support.gpusets import GpuRoom, values

MIB = 1 << 20
GPM = {1: 97, 2: 61, 3: 20, 5: 44, 10: 35, 20: 100, 21: 200, 60: 3, 61: 4}


@pytest.fixture
def hopper(driver: FakeDriver) -> GpuRoom:
    driver.add_gpu()
    for number, value in GPM.items():
        driver.add("gpm", value, "gpu0", number)
    return GpuRoom(driver, everything=True)


def test_metrics_are_means_between_two_readings(hopper: GpuRoom, driver: FakeDriver) -> None:
    hopper.read(1)
    driver.add("gpm", 20, "gpu0", 5, at_s=1.25)
    read = values(hopper.read_fully(1))
    assert read["gpu_tensor_active_share"] == pytest.approx(0.26)
    assert read["gpu_sm_active_share"] == pytest.approx(0.61)
    assert read["gpu_dram_bandwidth_share"] == pytest.approx(0.35)
    assert values(hopper.read_fully(1))["gpu_tensor_active_share"] == pytest.approx(0.2)


def test_metrics_tell_the_traffic_too(hopper: GpuRoom, driver: FakeDriver) -> None:
    hopper.read(1)
    driver.calls()
    read = values(hopper.read_fully(1))
    assert read["gpu_pcie_sent_bytes_per_s"] == 100 * MIB
    assert read["gpu_nvlink_sent_bytes_per_s"] == 4 * MIB
    assert not [call for call in driver.calls() if "Throughput" in call or "FieldValues" in call]


def test_metric_that_the_device_lacks_is_missing(driver: FakeDriver) -> None:
    driver.add_gpu()
    driver.add("gpm", 44, "gpu0", 5)
    room = GpuRoom(driver, everything=True)
    room.read()
    assert values(room.read_fully(1)) == {"gpu_tensor_active_share": pytest.approx(0.44)}


def test_device_without_metrics_is_asked_for_them_once(driver: FakeDriver) -> None:
    driver.add_gpu()
    room = GpuRoom(driver, everything=True)
    driver.calls()
    for _ in range(3):
        room.read(1)
    assert [call for call in driver.calls() if "Gpm" in call] == ["nvmlGpmQueryDeviceSupport gpu0"]


def test_snapshots_are_given_back(hopper: GpuRoom, driver: FakeDriver) -> None:
    hopper.read()
    driver.calls()
    hopper.gpus.close()
    assert driver.calls() == ["nvmlGpmSampleFree"] * 2


def test_rates_come_from_counters(driver: FakeDriver) -> None:
    driver.add_gpu()
    driver.add("field_per_s", 5e9, "gpu0", 197)
    driver.add("field_per_s", 1 << 20, "gpu0", 138)  # in KiB
    room = GpuRoom(driver, everything=True)
    room.read()
    read = values(room.read_fully(2))
    assert read["gpu_pcie_sent_bytes_per_s"] == pytest.approx(5e9)
    assert read["gpu_nvlink_sent_bytes_per_s"] == pytest.approx(1 << 30)
    assert "gpu_nvlink_received_bytes_per_s" not in read


def test_counter_that_starts_anew_says_nothing_of_that_second(driver: FakeDriver) -> None:
    driver.add_gpu()
    driver.add("field", 1000, "gpu0", 197)
    room = GpuRoom(driver, everything=True)
    room.read()
    driver.add("field", 10, "gpu0", 197, at_s=1)
    assert "gpu_pcie_sent_bytes_per_s" not in values(room.read_fully(1))
    driver.add("field", 60, "gpu0", 197, at_s=2)
    assert values(room.read_fully(1))["gpu_pcie_sent_bytes_per_s"] == 50


def test_without_counters_the_driver_measures(driver: FakeDriver) -> None:
    driver.add_gpu(pcie_sent_bytes_per_s=2.5e6, pcie_received_bytes_per_s=1e6)
    room = GpuRoom(driver, everything=True)
    read = values(room.read())
    assert (read["gpu_pcie_sent_bytes_per_s"], read["gpu_pcie_received_bytes_per_s"]) == (2.5e6, 1e6)
