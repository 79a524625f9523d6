"""Whole runs beside the fake driver's GPU, with causes planted in what it tells: found where they are, only there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from fakedriver import FakeDriver
from launching import run
from sessions import PROGRAMS

from profd.daemon.analyze.findings.catalog import find
from profd.daemon.analyze.findings.finding import CRITICAL
from profd.daemon.collect.gpu.users import RealTraces
from profd.daemon.store.reader import RunReader

GIB = 1 << 30
WORK, TRAINING = PROGRAMS / "gpuwork.py", Path(__file__).parents[2] / "target" / "simple_net.py"
HEALTHY: dict[str, object] = {
    "memory_used_bytes": 4 * GIB, "memory_total_bytes": 80 * GIB, "utilization_share": 0,
    "pcie_received_bytes_per_s": 1e8, "pcie_generation": 5, "pcie_lanes": 16, "throttle_reasons_mask": 0,
}  # fmt: skip
PLANTED: dict[str, dict[str, object]] = {
    "pcie-bound": {"pcie_received_bytes_per_s": 5e9, "pcie_generation": 4, "pcie_lanes": 4},
    "gpu-held-back": {"throttle_reasons_mask": 0x40},
    "gpu-memory-limit": {"memory_used_bytes": 79 * GIB},
}

sees_processes = pytest.mark.skipif(
    not RealTraces().sees_host_pids(), reason="NVML names PIDs of the host, and this is a container"
)
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Give the processes of a run a driver, on the wall clock."""
    made = FakeDriver(nvml_library, tmp_path, time.time_ns())
    for name, value in {**made.environment, "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    return made


def found_in(path: Path, *words: str) -> dict[str, str]:
    """Profile a script; return the severity of each finding by its rule, the gravest first."""
    ended = run(*words[:-2], "-o", str(path), "--", sys.executable, *words[-2:])
    assert ended.returncode == 0, ended.stderr.decode()
    with RunReader(path) as reader:
        return {one.rule: one.severity for one in find(reader)}


@sees_processes
def test_what_a_gpu_tells_of_itself_is_found_together(driver: FakeDriver, tmp_path: Path) -> None:
    planted = {name: value for values in PLANTED.values() for name, value in values.items()}
    driver.add_gpu("gpu0", **{**HEALTHY, **planted})

    assert set(PLANTED) <= set(found_in(tmp_path / "run.profd", str(WORK), "10"))


@sees_processes
def test_a_gpu_with_room_has_none_of_them(driver: FakeDriver, tmp_path: Path) -> None:
    driver.add_gpu("gpu0", **HEALTHY)

    assert not set(PLANTED) & set(found_in(tmp_path / "run.profd", str(WORK), "10"))


@pytest.mark.requires("torch")
def test_a_training_beside_a_gpu_that_it_does_not_use_is_told_so_first(driver: FakeDriver, tmp_path: Path) -> None:
    driver.add_gpu("gpu0", **HEALTHY)
    # With all GPUs: else those that no process of the run uses are not read.
    found = found_in(tmp_path / "run.profd", "--all-gpus", str(TRAINING), "--steps=8000")

    assert next(iter(found.items())) == ("gpu-unused", CRITICAL)
