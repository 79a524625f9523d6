"""What an H200 (driver 580.159, recorded by ``gpu_recorder.py``) answered, read by the real pynvml
and profd's reader.

Meanwhile ``gpu_programs.py gaps --gap 130 --busy 170`` ran on it, and logged when each step ended,
and its length: the first 130 ms it slept, then one kernel ran.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from support.clocks import StoppedClock
from support.gpureplay import ReplayLibrary
from support.gpusets import GpuRoom

from profd.daemon.clock import SECOND_NS
from profd.daemon.gpu.nvmlsource import METRICS

H200 = Path(__file__).parents[2] / "nvml" / "h200"
GAP_S = 0.13
SLEEPS_LATE_S = 0.0001
RENEWAL_S = 0.1


class Kernels:
    """When a kernel ran, by the clock of a recording."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        to_wall_s = (rows[0]["realtime_ns"] - rows[0]["monotonic_ns"]) / SECOND_NS
        steps = [json.loads(line) for line in (H200 / "gaps-steps.jsonl").read_text().splitlines()]
        self.ran: list[tuple[float, float]] = [
            (to_wall_s + end_s - (length_s - GAP_S - SLEEPS_LATE_S), to_wall_s + end_s)
            for end_s, length_s in steps
        ]

    def share(self, from_s: float, to_s: float) -> float:
        overlaps = (min(to_s, end_s) - max(from_s, start_s) for start_s, end_s in self.ran)
        return sum(max(one, 0.0) for one in overlaps) / (to_s - from_s)


def rows_of(name: str) -> list[dict[str, Any]]:
    with gzip.open(H200 / name, "rt") as file:
        return [json.loads(line) for line in file]


class Still:
    """A driver whose time nobody has to set."""

    def set_now(self, now_s: float) -> None: ...


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuRoom]:
    clock = StoppedClock()
    replay = ReplayLibrary(H200 / "gaps.jsonl.gz", lambda: clock.at_ns)
    clock.at_ns = replay.start_ns
    monkeypatch.setattr(pynvml, "nvmlLib", replay)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    found = GpuRoom(Still(), clock=clock, everything=True)  # type: ignore[arg-type]
    found.read()
    found.go_on(3)
    yield found
    found.source.close()


def test_its_utilization_is_that_of_the_kernels_at_their_times(room: GpuRoom) -> None:
    kernels, start_s = Kernels(rows_of("gaps.jsonl.gz")), room.start_ns / SECOND_NS
    read = [(start_s + at_s, share) for at_s, share in room.series("gpu_utilization_share")]
    assert len(read) == 15

    def apart(late_s: float) -> float:
        """Return by how much readings are off at most, if they are so late: the recorder asked
        every 30 ms.
        """
        return max(
            abs(share - kernels.share(one_s - late_s, other_s - late_s))
            for (one_s, _), (other_s, share) in itertools.pairwise(read)
        )

    assert min(map(apart, (0.0, 0.01, 0.02, 0.03))) < 0.03
    nine_loops = [share for _, share in read[1:] if share]
    assert sum(nine_loops) / len(nine_loops) == pytest.approx(0.17 / 0.3, abs=0.015)


def test_its_stamps_are_the_wall_clock(room: GpuRoom) -> None:
    assert room.remarks == []
    offset_s = next(iter(room.gpus.readers.values()))._samples.driver_clock.offset_ns or 0
    assert 0 <= offset_s / SECOND_NS < 0.03


def test_its_metrics_memory_and_processes_are_read(room: GpuRoom) -> None:
    (device,) = room.devices
    assert (device.model, device.memory_bytes) == ("NVIDIA H200", 150_754_820_096)
    names = {point.name for taken in room.taken for point in taken.points}
    assert names >= METRICS.keys() | {
        "gpu_power_watts",
        "gpu_memory_used_bytes",
    }
    assert room.series("gpu_memory_used_bytes")[0][1] == 554_500_096
    assert 100 < room.series("gpu_power_watts")[-1][1] < 200


def test_its_metrics_are_renewed_ten_times_a_second_and_are_zero_between() -> None:
    means, asked_s = [], 0.0
    for row in rows_of("activity.jsonl.gz"):
        if row["call"] == "nvmlGpmSampleGet":
            asked_s = row["realtime_ns"] / SECOND_NS
        elif row["call"] == "nvmlGpmMetricsGet" and row["code"] == 0:
            answer = pynvml.c_nvmlGpmMetricsGet_t.from_buffer_copy(
                bytes.fromhex(row["args"][0]["bytes"])
            )
            means.append(
                (asked_s, [answer.metrics[place].value for place in range(answer.numMetrics)])
            )
    renewed_s = [at_s for at_s, values in means if values[0] > 0]
    assert 0.07 < len(renewed_s) / len(means) < 0.15
    apart_s = [after_s - before_s for before_s, after_s in itertools.pairwise(renewed_s)]
    assert min(apart_s) > RENEWAL_S - 0.03
    assert sum(apart_s) / len(apart_s) == pytest.approx(RENEWAL_S, abs=0.002)
    kernels = Kernels(rows_of("activity.jsonl.gz"))
    late_s = {one / 100: apart(means, kernels, one / 100) for one in range(10)}
    assert min(late_s, key=lambda one: late_s[one]) in (0.02, 0.03)


def apart(means: list[tuple[float, list[float]]], kernels: Kernels, late_s: float) -> float:
    """Return by how much the renewed means of graphics activity are off, if they end so long before
    they are seen.
    """
    return sum(
        abs(values[0] / 100 - kernels.share(at_s - late_s - RENEWAL_S, at_s - late_s))
        for at_s, values in means
        if values[0] > 0 and kernels.ran[1][0] < at_s < kernels.ran[-1][1]
    )
