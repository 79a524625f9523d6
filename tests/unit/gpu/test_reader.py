"""What is read of a GPU: every quantity in its unit, and nothing where the device lacks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.gpusets import MAIN, GpuRoom, values
from support.gpusim import SimulatedDriver, build

from profd.daemon.store.records import DeviceSeen, Point

GIB = 1 << 30
GAUGES: dict[str, Any] = {
    "memory_used_bytes": 12 * GIB,
    "memory_total_bytes": 80 * GIB,
    "power_watts": 212,
    "power_limit_watts": 700,
    "temperature_celsius": 63,
    "sm_clock_hz": 1.98e9,
    "memory_clock_hz": 2.619e9,
    "pcie_generation": 5,
    "pcie_lanes": 16,
    "ecc_corrected_count": 7,
    "ecc_uncorrected_count": 0,
}


@pytest.fixture
def room(driver: SimulatedDriver) -> GpuRoom:
    driver.add_gpu(**GAUGES)
    driver.add("process_memory_bytes", 10 * GIB, "gpu0", MAIN.pid)
    return GpuRoom(driver)


def test_gauges_have_the_units_of_their_names_and_a_device_is_written_once(room: GpuRoom) -> None:
    read = values(room.read())
    assert {name: read[f"gpu_{name}"] for name in GAUGES} == pytest.approx(GAUGES)
    room.read(1)
    seen = DeviceSeen(room.start_ns, "gpu0", 0, "NVIDIA H100 80GB HBM3", "GPU-gpu0", 80 * GIB)
    assert room.devices == [seen]


def test_a_device_that_tells_only_its_memory_gives_only_that(driver: SimulatedDriver) -> None:
    driver.add_gpu(memory_used_bytes=GIB, memory_total_bytes=2 * GIB)
    room = GpuRoom(driver, everything=True)
    expected = {
        "gpu_memory_used_bytes": GIB,
        "gpu_memory_total_bytes": 2 * GIB,
    }
    assert values(room.read()) == expected


def test_what_is_lacking_is_asked_for_once(driver: SimulatedDriver) -> None:
    driver.add_gpu()
    room = GpuRoom(driver, everything=True)
    room.read()
    room.read(1)
    driver.calls()
    room.read(1)
    assert driver.calls() == [
        "nvmlDeviceGetComputeRunningProcesses_v3 gpu0",
        "nvmlDeviceGetGraphicsRunningProcesses_v3 gpu0",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3 gpu0",
    ]


@pytest.mark.parametrize(
    ("name", "times_s"),
    [
        ("gpu_power_watts", [1, 3, 5, 7, 9, 11]),
        ("gpu_process_memory_bytes", [1, 3, 5, 7, 9, 11]),
        ("gpu_temperature_celsius", [1, 7]),
        ("gpu_power_limit_watts", [1, 11]),
    ],
)
def test_what_changes_slowly_is_read_less_often(
    room: GpuRoom, name: str, times_s: list[int]
) -> None:
    room.go_on(11)
    assert [at_s for at_s, _ in room.series(name)] == times_s


@pytest.mark.parametrize(
    ("reasons", "mask"),
    [(0x1, 0), (0x2, 0), (0x4, 0x4), (0x1 | 0x40, 0x40), (0x80, 0x80)],
    ids=["idle", "chosen clocks", "power cap", "heat", "power brake"],
)
def test_throttled_is_what_slows_the_gpu_against_its_will(
    room: GpuRoom, driver: SimulatedDriver, reasons: int, mask: int
) -> None:
    driver.add("throttle_reasons_mask", reasons, "gpu0")
    assert values(room.read())["gpu_throttle_reasons_mask"] == mask


def test_time_with_clocks_held_down_is_what_the_driver_counts_between_flags(
    room: GpuRoom, driver: SimulatedDriver
) -> None:
    driver.add("held_share", 0.25, "gpu0", 1)
    room.go_on(13)
    assert dict(room.series("gpu_heat_slowed_share")) == pytest.approx({7: 0.25, 13: 0.25})
    assert room.series("gpu_power_capped_share") == []


def test_memory_of_a_process_is_its_own(room: GpuRoom, driver: SimulatedDriver) -> None:
    driver.add("process_memory_bytes", GIB, "gpu0", 99)
    driver.add(
        "graphics_memory_bytes", 10 * GIB, "gpu0", MAIN.pid
    )  # it also draws, and holds its memory once
    assert [point for point in room.read() if point.identity is not None] == [
        Point("gpu_process_memory_bytes", 10 * GIB, MAIN, device="gpu0")
    ]


def test_memory_that_nvml_does_not_tell_is_missing(driver: SimulatedDriver) -> None:
    driver.add_gpu(memory_used_bytes=GIB, memory_total_bytes=GIB)
    driver.add("process_memory_bytes", "N/A", "gpu0", MAIN.pid)
    points = GpuRoom(driver).read()
    assert [point for point in points if point.identity is not None] == []
    assert "gpu_memory_used_bytes" in values(points)


@pytest.mark.requires("cc")
def test_library_of_a_driver_before_the_newer_functions_gives_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").mkdir()
    driver = SimulatedDriver(build(tmp_path / "old", "-DOLD_DRIVER"), tmp_path)
    driver.install(monkeypatch)
    driver.set_now(0)
    driver.add_gpu(memory_used_bytes=1, memory_total_bytes=2, utilization_share=1)
    room = GpuRoom(driver, everything=True)
    read = values(room.read() + room.read_fully(3))
    assert {"gpu_memory_used_bytes", "gpu_utilization_share"} <= read.keys()
