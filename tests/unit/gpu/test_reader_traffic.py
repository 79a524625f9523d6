"""What a GPU sends and receives where GPM does not tell: counters of NVLink, and for PCIe what the
driver measures.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.gpusets import GpuRoom, values
from support.gpusim import SimulatedDriver

MEMORY: dict[str, Any] = {"memory_used_bytes": 1, "memory_total_bytes": 2}


def read_once(
    driver: SimulatedDriver, counters: dict[int, float], gpu: dict[str, Any] = MEMORY
) -> GpuRoom:
    """Return a GPU that was read once, and whose counters go on by so much a second."""
    driver.add_gpu(**gpu)
    for number, per_s in counters.items():
        driver.add("field_per_s", per_s, "gpu0", number)
    room = GpuRoom(driver, everything=True)
    room.read()
    return room


def test_rates_of_nvlink_come_from_its_counters(driver: SimulatedDriver) -> None:
    room = read_once(driver, {138: 1 << 20})  # in KiB
    read = values(room.read_fully(2))
    assert read["gpu_nvlink_sent_bytes_per_s"] == pytest.approx(1 << 30)
    assert "gpu_nvlink_received_bytes_per_s" not in read


def test_a_counter_that_was_reset_says_nothing_of_that_time(driver: SimulatedDriver) -> None:
    driver.add("field", 1000, "gpu0", 138)
    room = read_once(driver, {})
    driver.add("field", 10, "gpu0", 138, at_s=0.5)
    assert "gpu_nvlink_sent_bytes_per_s" not in values(room.read_fully(1))
    assert values(room.read_fully(1))["gpu_nvlink_sent_bytes_per_s"] == 0


def test_the_driver_measures_pcie(driver: SimulatedDriver) -> None:
    driver.add_gpu(pcie_sent_bytes_per_s=2.5e6, pcie_received_bytes_per_s=1e6, **MEMORY)
    room = GpuRoom(driver, everything=True)
    read = values(room.read())
    assert (read["gpu_pcie_sent_bytes_per_s"], read["gpu_pcie_received_bytes_per_s"]) == (
        2.5e6,
        1e6,
    )


def test_a_gpu_that_shares_the_memory_of_the_machine_has_no_pcie(driver: SimulatedDriver) -> None:
    driver.add_gpu(pcie_generation=1, pcie_lanes=1, pcie_sent_bytes_per_s=5)  # as GB10 says
    points = GpuRoom(driver, everything=True).read()
    assert [name for name in values(points) if "pcie" in name] == []
