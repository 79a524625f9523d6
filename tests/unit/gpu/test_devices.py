"""MIG: instances are devices of their own, with their memory, their processes and their share of
the metrics.
"""

from __future__ import annotations

import pytest
from support.gpusets import MAIN, GpuRoom, values
from support.gpusim import SimulatedDriver
from support.gputraces import PARTS, WHOLE, gpu

from profd.daemon.gpu.devices import GpuNames, visible_gpus
from profd.daemon.store.records import Point

GIB = 1 << 30


@pytest.fixture
def room(driver: SimulatedDriver) -> GpuRoom:
    driver.add_gpu(
        "gpu0", mig_mode=1, power_watts=400, memory_used_bytes=30 * GIB, memory_total_bytes=80 * GIB
    )
    for number, used in ((0, 10 * GIB), (1, 20 * GIB)):
        driver.add_gpu(
            f"gpu0-mig{number}",
            model="NVIDIA H100 MIG 3g.40gb",
            uuid=f"MIG-{number}",
            mig_of="gpu0",
            gpu_instance=number + 1,
            memory_used_bytes=used,
            memory_total_bytes=40 * GIB,
        )
    driver.add("process_memory_bytes", 9 * GIB, "gpu0-mig0", MAIN.pid)
    driver.add("process_memory_bytes", 19 * GIB, "gpu0-mig1", 99)
    driver.add("gpm", 80, "gpu0-mig0", 1)
    driver.add("gpm", 30, "gpu0-mig0", 5)
    return GpuRoom(driver)


def test_the_instance_of_the_run_alone_is_read_its_memory_and_the_power_of_its_gpu(
    room: GpuRoom,
) -> None:
    points = room.read()
    assert {point.device for point in points} == {"gpu0", "gpu0-mig0"}
    assert [(seen.name, seen.index) for seen in room.devices] == [("gpu0", 0), ("gpu0-mig0", 0)]
    assert values(points, "gpu0")["gpu_power_watts"] == 400
    assert values(points, "gpu0-mig0")["gpu_memory_used_bytes"] == 10 * GIB
    assert "gpu_power_watts" not in values(points, "gpu0-mig0")
    process = [point for point in points if point.identity == MAIN]
    assert process == [Point("gpu_process_memory_bytes", 9 * GIB, MAIN, device="gpu0-mig0")]


def test_utilization_of_an_instance_is_that_of_the_metrics(room: GpuRoom) -> None:
    room.read()
    read = values(room.read_fully(1), "gpu0-mig0")
    assert read["gpu_utilization_share"] == pytest.approx(0.8)
    assert read["gpu_tensor_active_share"] == pytest.approx(0.3)


def test_instances_keep_their_names_when_another_is_gone(driver: SimulatedDriver) -> None:
    names = GpuNames()
    assert names.of("MIG-0", "gpu0-mig0") == "gpu0-mig0"
    assert names.of("MIG-1", "gpu0-mig1") == "gpu0-mig1"
    assert names.of("MIG-1", "gpu0-mig0") == "gpu0-mig1"
    assert names.of("MIG-2", "gpu0-mig0") == "gpu0-mig0-2"


def test_instance_without_an_answer_to_its_names_is_there_all_the_same(
    driver: SimulatedDriver,
) -> None:
    driver.add_gpu("gpu0", mig_mode=1)
    driver.add_gpu("gpu0-mig0", mig_of="gpu0")
    driver.add("error", 3, "gpu0-mig0", "nvmlDeviceGetUUID")
    room = GpuRoom(driver)
    assert [gpu.name for gpu in room.source.gpus()] == ["gpu0", "gpu0-mig0"]


GPUS = [*WHOLE, *PARTS]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("0", ["gpu0"]),
        ("2,0", ["gpu2", "gpu0"]),
        (" 1 , 2", ["gpu1", "gpu2"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["gpu0"]),
        ("0,7,1", ["gpu0"]),
        ("NoDevFiles", []),
        ("1,1", []),
        ("GPU-c0de", ["gpu2"]),
        ("GPU-8f6a-00,GPU-c0de-22", ["gpu0", "gpu2"]),
        ("GPU-8f6", []),
        ("MIG-2222", ["gpu2-mig11"]),
    ],
    ids=lambda value: repr(value) if isinstance(value, str) else "",
)
def test_words_mean_what_cuda_takes_them_for(words: str, names: list[str]) -> None:
    found = visible_gpus({"CUDA_VISIBLE_DEVICES": words}, GPUS)
    assert found is not None
    assert [one.name for one in found] == names


def test_numbers_of_unlike_gpus_are_in_an_order_that_is_not_ours() -> None:
    assert visible_gpus({}, GPUS) is None  # nor is anything hidden
    mixed = [gpu(0, "GPU-a", "T4"), gpu(1, "GPU-b", "H100")]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, mixed) is None
    in_order = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_gpus(in_order, mixed) == (mixed[0],)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-b"}, mixed) == (mixed[1],)
