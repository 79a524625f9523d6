"""What drivers get wrong, and what is made of it: lists of processes, memory, power, numbers of
other namespaces.
"""

from __future__ import annotations

import pytest
from support.gpusets import MAIN, GpuRoom, values
from support.gpusim import SimulatedDriver
from support.gputraces import FakeTraces

from profd.daemon.gpu.answers import NoDriverAnswer

GIB = 1 << 30
NO_PERMISSION = 4
HOST_PID = 645_400


@pytest.fixture
def simulated(driver: SimulatedDriver) -> SimulatedDriver:
    driver.add_gpu(memory_used_bytes=20 * GIB, memory_total_bytes=80 * GIB, utilization_share=0.5)
    return driver


def memory_of_processes(room: GpuRoom) -> list[float]:
    return [point.value for point in room.read() if point.name == "gpu_process_memory_bytes"]


@pytest.mark.parametrize("fault", [1, 2], ids=["all ones", "zeros"])
def test_a_list_with_the_structure_of_another_version_names_nobody(
    simulated: SimulatedDriver, fault: int
) -> None:
    simulated.add("process_list_fault", fault, "gpu0")
    for pid in (MAIN.pid, 77, 78, 79):
        simulated.add("process_memory_bytes", pid * 1000, "gpu0", pid)
    traces = FakeTraces()
    traces.compute(MAIN.pid, 0)
    room = GpuRoom(simulated, traces)
    assert memory_of_processes(room) == []
    assert [seen.name for seen in room.devices] == ["gpu0"]


def test_memory_of_nothing_is_unknown_and_the_process_is_there(simulated: SimulatedDriver) -> None:
    simulated.add("process_memory_bytes", 0, "gpu0", MAIN.pid)
    room = GpuRoom(simulated)
    assert memory_of_processes(room) == []
    assert [seen.name for seen in room.devices] == ["gpu0"]


def test_a_client_of_mps_is_found_in_the_list_of_its_own(simulated: SimulatedDriver) -> None:
    simulated.add("mps_memory_bytes", 7 * GIB, "gpu0", MAIN.pid)
    assert memory_of_processes(GpuRoom(simulated)) == [7 * GIB]


def test_what_the_driver_keeps_for_itself_is_not_used(simulated: SimulatedDriver) -> None:
    simulated.add("memory_reserved_bytes", GIB // 2, "gpu0")
    assert values(GpuRoom(simulated, everything=True).read())["gpu_memory_used_bytes"] == 20 * GIB
    simulated.add("error", 13, "gpu0", "nvmlDeviceGetMemoryInfo_v2")  # a driver before R510
    assert values(GpuRoom(simulated, everything=True).read())["gpu_memory_used_bytes"] == 20.5 * GIB


def test_power_is_the_mean_that_the_energy_counter_tells(simulated: SimulatedDriver) -> None:
    simulated.add("power_watts", 100, "gpu0")  # what a driver says that looks a quarter of the time
    simulated.add("drawn_watts", 400, "gpu0")
    simulated.add("drawn_watts", 200, "gpu0", at_s=2)
    room = GpuRoom(simulated, everything=True)
    room.go_on(5)
    assert dict(room.series("gpu_power_watts")) == pytest.approx({1: 100, 3: 300, 5: 200})


def test_metrics_that_are_refused_in_mid_run_come_back_a_minute_later(
    simulated: SimulatedDriver,
) -> None:
    simulated.add("gpm_of_utilization", 1, "gpu0", 1)
    simulated.add("pcie_sent_bytes_per_s", 3e9, "gpu0")
    simulated.add("error", NO_PERMISSION, "gpu0", "nvmlGpmSampleGet", at_s=5)
    simulated.add("error", "", "gpu0", "nvmlGpmSampleGet", at_s=20)
    room = GpuRoom(simulated, everything=True)
    room.go_on(70)
    active = [at_s for at_s, _ in room.series("gpu_graphics_active_share")]
    assert [at_s for at_s in active if 5 < at_s < 60] == []
    assert [at_s for at_s in active if at_s >= 66] == [67.0, 69.0]
    assert [at_s for at_s in active if at_s < 5] == [3.0]
    sent = [value for at_s, value in room.series("gpu_pcie_sent_bytes_per_s") if 8 < at_s < 60]
    assert sent == pytest.approx([3e9] * len(sent))
    assert len(sent) >= 20


def test_more_than_all_is_no_utilization(simulated: SimulatedDriver) -> None:
    simulated.add("utilization_now_share", 2.5, "gpu0")
    room = GpuRoom(simulated)
    with pytest.raises(NoDriverAnswer, match="says 250 %"):
        room.source.utilization(room.gpus.gpus[0])
