"""Whole runs with the fake driver: a GPU with planted idle gaps, and a driver that does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from fakedriver import FakeDriver
from launching import PROFD, run
from sessions import PROGRAMS

from profd.daemon.analyze.gpu.idle import while_gpu_idle
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.gpu.users import RealTraces
from profd.daemon.store.reader import RunReader

GIB = 1 << 30
STEPS = 8
SCRIPT = str(PROGRAMS / "gpuwork.py")


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Give the processes of a run a driver with a GPU, on the wall clock."""
    made = FakeDriver(nvml_library, tmp_path, time.time_ns())
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    made.add_gpu("gpu0", memory_used_bytes=4 * GIB, memory_total_bytes=80 * GIB, power_watts=212, utilization_share=0)
    return made


def record(path: Path, steps: int = STEPS) -> None:
    """Run the training loop under profd, with all GPUs: in a container NVML's PIDs are not those of the loop."""
    ended = run("--all-gpus", "-o", str(path), "--", sys.executable, SCRIPT, str(steps))
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.timeout(120)
def test_idle_gaps_are_found_with_what_python_did_in_them(driver: FakeDriver, tmp_path: Path) -> None:
    path = tmp_path / "run.profd"
    record(path)
    with RunReader(path) as reader:
        idle = take_profile(reader, while_gpu_idle(MAIN_THREADS), PhaseIndex(reader))
        in_load = sum(
            time_ns
            for stack, time_ns in idle.time_ns.items()
            if any(frame.function == "load" for frame in reader.frames_of(stack))
        )
    # A gap of 0.6 s holds at least two whole samples of a sixth of a second.
    assert idle.total_ns >= STEPS * 0.3 * SECOND_NS
    assert in_load / idle.total_ns >= 0.95


@pytest.mark.timeout(120)
@pytest.mark.skipif(not RealTraces().sees_host_pids(), reason="NVML names PIDs of the host, and this is a container")
def test_only_the_gpu_of_the_run_is_read_with_the_memory_of_its_process(driver: FakeDriver, tmp_path: Path) -> None:
    driver.add_gpu("gpu1", memory_used_bytes=1 * GIB, memory_total_bytes=80 * GIB, utilization_share=1)
    path = tmp_path / "run.profd"
    ended = run("-o", str(path), "--", sys.executable, SCRIPT, "2")
    assert ended.returncode == 0, ended.stderr.decode()
    with RunReader(path) as reader:
        assert [device.name for device in reader.devices()] == ["gpu0"]
        memory = reader.find_series("gpu_process_memory_bytes", process=1, device="gpu0")
        assert memory is not None
        assert {point.value for point in reader.points(memory.id)} == {3 * GIB}


@pytest.mark.timeout(120)
def test_summary_names_the_gpu_that_was_used(driver: FakeDriver, tmp_path: Path) -> None:
    path = tmp_path / "run.profd"
    record(path, 4)
    said = subprocess.run([PROFD, "summary", "--json", str(path)], capture_output=True, check=True, timeout=60).stdout
    (gpu,) = json.loads(said)["gpus"]
    assert (gpu["index"], gpu["name"], gpu["memory_bytes"]) == (0, "NVIDIA H100 80GB HBM3", 80 * GIB)
    assert (gpu["power_watts"], gpu["memory_used_bytes"]) == (212, 4 * GIB)
    assert 0.3 < gpu["utilization"] < 0.7


@pytest.mark.timeout(120)
def test_call_into_the_driver_that_never_returns_delays_nothing_else(driver: FakeDriver, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    driver.add("block", gate, key="nvmlDeviceGetPowerUsage")
    path = tmp_path / "run.profd"
    before_s = time.monotonic()
    record(path, 8)
    assert time.monotonic() - before_s < 30
    with RunReader(path) as reader:
        texts = [event.text for event in reader.events() if event.kind == "gpu"]
        host = reader.find_series("host_cpu_share")
        assert host is not None
        times_ns = [point.at_ns for point in reader.points(host.id)]
    assert [text.split(":")[0] for text in texts] == ["NVML does not answer (nvmlDeviceGetPowerUsage)"]
    assert len(times_ns) >= 6
    assert max(after - before for before, after in pairwise(times_ns)) < 3 * SECOND_NS


@pytest.mark.timeout(120)
def test_library_of_a_driver_before_the_newer_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fakedriver import build

    old = tmp_path / "old"
    old.mkdir()
    driver = FakeDriver(build(old, "-DOLD_DRIVER"), tmp_path, time.time_ns())
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    driver.add_gpu("gpu0", memory_used_bytes=1, memory_total_bytes=2, throttle_reasons_mask=4, utilization_share=1)
    path = tmp_path / "run.profd"
    record(path, 2)
    with RunReader(path) as reader:
        names = {series.name for series in reader.series.values() if series.device == "gpu0"}
    assert {"gpu_memory_used_bytes", "gpu_throttled_share", "gpu_utilization_share"} <= names
