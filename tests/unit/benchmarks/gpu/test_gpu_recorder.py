"""What the recorder writes down of a driver gives the same readings again when it is replayed."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pynvml
import pytest
from gpu.gpu_recorder import RecordingLibrary, record
from support.clocks import StoppedClock
from support.gpureplay import ReplayLibrary
from support.gpusets import MAIN, GpuRoom
from support.gpusim import SimulatedDriver, Timeline

from profd.daemon.clock import SECOND_NS

SECONDS = 8
UPTIME_S = 5_000.0
NO_PERMISSION = 4
SERIES = ("gpu_utilization_share", "gpu_pcie_sent_bytes_per_s", "gpu_memory_used_bytes")


@pytest.fixture
def simulated(driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    """Give a driver that stamps its samples since boot, and that refuses GPM after six seconds."""
    monkeypatch.delenv("FAKE_NVML_CALLS")
    driver.add_gpu(
        memory_used_bytes=20 << 30, memory_total_bytes=80 << 30, memory_reserved_bytes=1 << 29
    )
    for name, value in (("clock_offset_s", UPTIME_S - 1_795_176_000), ("sample_period_s", 0.2)):
        driver.add(name, value, "gpu0")
    driver.add("gpm_of_utilization", 1, "gpu0", 1)
    driver.add("field_per_s", 3e9, "gpu0", 197)
    driver.add("process_memory_bytes", 18 << 30, "gpu0", MAIN.pid)
    driver.add("error", NO_PERMISSION, "gpu0", "nvmlGpmSampleGet", at_s=6)
    driver.run(Timeline.steps(SECONDS + 2, 0.5, 0.3))
    return driver


@pytest.fixture
def recording(simulated: SimulatedDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path, clock = tmp_path / "nvml-raw.jsonl.gz", StoppedClock()
    start_ns = clock.at_ns

    def pause(seconds: float) -> None:
        clock.advance(seconds)
        simulated.set_now((clock.at_ns - start_ns) / SECOND_NS)

    with gzip.open(path, "wt") as file:
        library = RecordingLibrary(
            pynvml.nvmlLib, file, lambda: (clock.at_ns, clock.at_ns, clock.at_ns)
        )
        with monkeypatch.context() as patch:
            patch.setattr(pynvml, "nvmlLib", library)
            patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
            record(SECONDS, pause)
    return path


def read(room: GpuRoom) -> dict[str, list[tuple[float, float]]]:
    room.read()
    for _ in range(SECONDS - 1):
        room.read(1)
    return {name: room.series(name) for name in SERIES}


def test_a_replay_reads_as_the_device_did(
    recording: Path, simulated: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.set_now(0)
    live = GpuRoom(simulated)
    recorded = read(live)
    clock = StoppedClock()
    replay = ReplayLibrary(recording, lambda: clock.at_ns)
    monkeypatch.setattr(pynvml, "nvmlLib", replay)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    room = GpuRoom(simulated, clock=clock)
    again = read(room)
    assert len(again["gpu_utilization_share"]) >= 5 * (SECONDS - 3)
    for name in SERIES:
        assert [value for _, value in again[name]] == pytest.approx(
            [value for _, value in recorded[name]], abs=0.1, rel=0.1
        )
        late = [
            other - one for (one, _), (other, _) in zip(recorded[name], again[name], strict=True)
        ]
        assert all(abs(one) < 0.041 for one in late), (name, late)
    assert [seen.model for seen in room.devices] == ["NVIDIA H100 80GB HBM3"]
    assert [point.value for taken in room.taken for point in taken.points if point.identity == MAIN]


def test_each_call_is_written_down_with_its_code_its_stamps_and_the_bytes_of_the_driver(
    recording: Path,
) -> None:
    with gzip.open(recording, "rt") as file:
        rows = [json.loads(line) for line in file]
    calls = Counter(row["call"] for row in rows)
    assert calls["nvmlDeviceGetUtilizationRates"] == SECONDS * 50
    assert (
        calls["nvmlDeviceGetComputeRunningProcesses_v3"]
        == calls["nvmlDeviceGetComputeRunningProcesses_v2"]
    )
    assert {row["code"] for row in rows if row["call"] == "nvmlGpmSampleGet"} == {0, NO_PERMISSION}
    assert all(
        row.keys() >= {"realtime_ns", "boottime_ns", "monotonic_ns", "took_ns"} for row in rows
    )
    whole = [
        row
        for row in rows
        if row["call"] == "nvmlDeviceGetSamples" and row["args"][5] and not row["code"]
    ]
    samples = next(row for row in whole if row["realtime_ns"] > rows[0]["realtime_ns"] + SECOND_NS)
    first_us = int.from_bytes(bytes.fromhex(samples["args"][5]["bytes"])[:8], "little")
    assert first_us == (UPTIME_S + 0.2) * 1e6
