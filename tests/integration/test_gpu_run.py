"""Whole runs with the fake driver: a GPU with planted idle gaps, and a driver that does not answer."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.folders import PROGRAMS
from support.gpusim import SimulatedDriver
from support.launches import PROFD, finish, printed, profd, read_ready
from support.waiting import until

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.events import EventKind
from profd.daemon.gpu.users import ProcessTraces
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow

GIB = 1 << 30
SCRIPT = str(PROGRAMS / "gpuwork.py")


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    """Give the processes of a run a driver with a GPU, on the wall clock."""
    made = SimulatedDriver(nvml_library, tmp_path, time.time_ns())
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    made.add_gpu(
        "gpu0",
        memory_used_bytes=4 * GIB,
        memory_total_bytes=80 * GIB,
        power_watts=212,
        utilization_share=0,
    )
    return made


def record(path: Path, seen: Callable[[RunReader], object], *options: str) -> None:
    """Run the training loop under profd until its run file has what is to be seen."""

    def has_seen() -> object:
        with (
            contextlib.suppress(RunUnreadable),
            RunReader(path) as reader,
        ):  # it may be about to be made
            return seen(reader)
        return False

    words = [PROFD, "run", "--headless", *options, "-o", str(path), "--", sys.executable, SCRIPT]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    read_ready(process)
    until(has_seen, "what is to be seen")
    _, err, code = finish(process)
    assert code == 0, err.decode()


def points(reader: RunReader, name: str, device: str | None = None) -> list[PointRow]:
    """Return the points of all series of a name, and of a device, so far."""
    found = [one.id for one in reader.list_series() if one.name == name and one.device == device]
    return [point for series in found for point in reader.points(series)]


def sees_gaps(reader: RunReader) -> bool:
    read = points(reader, "gpu_utilization_share", "gpu0")
    return len(read) > 1 and read[-1].at_ns - read[0].at_ns > 3 * SECOND_NS


def test_idle_gaps_are_found_with_what_python_did_in_them(
    driver: SimulatedDriver, tmp_path: Path
) -> None:
    path = tmp_path / "run.profd"
    record(path, sees_gaps, "--all-gpus")  # in a container NVML's PIDs are not those of the loop
    idle_ns: Counter[str] = Counter()
    while_idle = Selection(main_threads=True, when=(Condition("gpu-idle"),))
    with RunReader(path) as reader:
        for stack, time_ns in take_profile(reader, while_idle, PhaseIndex(reader)).time_ns.items():
            functions = {frame.function for frame in reader.frames_of(stack)}
            idle_ns.update({name: time_ns for name in ("load", "compute") if name in functions})
    assert idle_ns["load"] > idle_ns["compute"]

    (gpu,) = printed(profd("summary", "--json", str(path))).gpus
    assert (gpu.index, gpu.name, gpu.memory_bytes) == (0, "NVIDIA H100 80GB HBM3", 80 * GIB)
    assert (gpu.power_watts, gpu.memory_used_bytes) == (212, 4 * GIB)
    assert 0 < gpu.utilization < 1


@pytest.mark.skipif(
    not ProcessTraces().sees_host_pids(),
    reason="NVML names PIDs of the host, and this is a container",
)
def test_only_the_gpu_of_the_run_is_read_with_the_memory_of_its_process(
    driver: SimulatedDriver, tmp_path: Path
) -> None:
    driver.add_gpu(
        "gpu1", memory_used_bytes=1 * GIB, memory_total_bytes=80 * GIB, utilization_share=1
    )
    path = tmp_path / "run.profd"
    record(path, lambda reader: points(reader, "gpu_process_memory_bytes", "gpu0"))
    with RunReader(path) as reader:
        assert [device.name for device in reader.devices()] == ["gpu0"]
        memory = reader.find_series("gpu_process_memory_bytes", process=1, device="gpu0")
        assert memory is not None
        assert {point.value for point in reader.points(memory.id)} == {3 * GIB}


def test_call_into_the_driver_that_never_returns_holds_up_nothing_else(
    driver: SimulatedDriver, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    driver.add("block", gate, key="nvmlDeviceGetPowerUsage")

    def goes_on(reader: RunReader) -> bool:
        events = [event.at_ns for event in reader.events() if event.kind == EventKind.GPU]
        return any(
            point.at_ns > at_ns for at_ns in events for point in points(reader, "host_cpu_share")
        )

    path = tmp_path / "run.profd"
    record(path, goes_on, "--all-gpus")
    with RunReader(path) as reader:
        (silent,) = [event for event in reader.events() if event.kind == EventKind.GPU]
    assert silent.text.split(":")[0] == "NVML does not answer (nvmlDeviceGetPowerUsage)"
