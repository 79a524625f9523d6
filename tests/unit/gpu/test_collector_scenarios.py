"""480 machines as containers, sandboxes and drivers make them: nothing false is said of any, and
nothing is missing.

The real pynvml asks the simulated driver. What is read is held against the timeline of kernels that
was planted.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from support.findingruns import HEALTHY, diagnose, write_case
from support.gpusets import MAIN, GpuRoom
from support.gpusim import SimulatedDriver, Timeline
from support.gputraces import FakeTraces

from profd.daemon.clock import SECOND_NS
from profd.daemon.findings.gpu import gpu_unused
from profd.daemon.store.rows import PointRow
from profd.daemon.store.stepfunction import step_function

SECONDS = 16
BREAK_S = 8.0
GIB = 1 << 30
UNKNOWN, NO_PERMISSION, INVALID_ARGUMENT, NOT_SUPPORTED = 999, 4, 2, 3
HOST_PID = 645_400
"""Of the training process, seen from outside of its container."""
PERIODS_S = (0.02, 0.1, 1 / 6, 0.2, 1.0)
LOOPS = ((0.018, 0.002), (0.05, 0.05), (0.1, 0.04), (0.3, 0.15), (2.0, 3.0))
CLOCKS: tuple[dict[str, float], ...] = (
    {},
    {"clock_offset_s": -1_795_176_000 + 58 * 86_400},
    {"clock_drift_ppm": 100},
    {"clock_offset_s": 7.3, "clock_drift_ppm": -60},
)
PLACES = (
    "host",
    "container that translates",
    "container without memory",
    "container",
    "sandbox",
    "WSL",
)


class Row(NamedTuple):
    """A row of the driver's scenario."""

    name: str
    value: object
    key: str | int = ""
    at_s: float = 0.0


SAMPLES, RATES = "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"
METRICS = Row("gpm_of_utilization", 1, 1)
FAULTS: dict[str, tuple[Row, ...]] = {
    "none": (),
    "dry buffer": (Row("dry_after_s", 0.5), Row("dry_is_empty", "")),
    "empty buffer": (Row("dry_after_s", 0.5), Row("dry_is_empty", 1)),
    "samples fail": (Row("error", UNKNOWN, SAMPLES),),
    "samples refused in mid-run": (Row("error", NO_PERMISSION, SAMPLES, BREAK_S),),
    "no samples": (Row("error", NOT_SUPPORTED, SAMPLES),),
    "no samples and no rates": (
        Row("error", INVALID_ARGUMENT, SAMPLES),
        Row("error", NOT_SUPPORTED, RATES),
    ),
    "lists fault of all ones": (Row("process_list_fault", 1),),
    "lists fault of zeros": (Row("process_list_fault", 2),),
    "metrics refused in mid-run": (
        METRICS,
        Row("error", NO_PERMISSION, "nvmlGpmSampleGet", BREAK_S),
    ),
    "falls off the bus": (Row("lost", 1, at_s=BREAK_S),),
    "unified memory": (),
    "MPS": (),
    "MIG": (METRICS,),
    "MIG without metrics": (),
    "batches of a second": (Row("sample_batch_s", 1),),
}
"""What each adds to the scenario.

Unified memory, MPS and MIG are in the device and its processes.
"""


class Scenario(NamedTuple):
    """A machine: where the run lives, what is the matter with the driver, its sampling period,
    clock, and the loop.
    """

    place: str
    fault: str
    period_s: float
    clock: dict[str, float]
    loop: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.place}, {self.fault}, {self.period_s:.2f} s, {self.clock}, {self.loop}"

    @property
    def timeline(self) -> Timeline:
        return Timeline.steps(SECONDS + 2, *self.loop)

    @property
    def is_mig(self) -> bool:
        return self.fault.startswith("MIG")

    @property
    def device(self) -> str:
        return "gpu0-mig0" if self.is_mig else "gpu0"


def scenarios() -> Iterator[Scenario]:
    """Yield each place with each fault and each period.

    Clocks and loops go round, always in the same order.
    """
    chance = random.Random(23)
    others = list(itertools.product(CLOCKS, LOOPS))
    for number, (place, fault, period_s) in enumerate(itertools.product(PLACES, FAULTS, PERIODS_S)):
        if number % len(others) == 0:
            chance.shuffle(others)
        yield Scenario(place, fault, period_s, *others[number % len(others)])


def set_up(driver: SimulatedDriver, scenario: Scenario) -> FakeTraces:
    """Give a driver its device and its faults; returns what /proc says of the training process."""
    memory = {
        "memory_used_bytes": 20 * GIB,
        "memory_total_bytes": 80 * GIB,
        "memory_reserved_bytes": GIB // 2,
    }
    values: dict[str, object] = {} if scenario.fault == "unified memory" else {**memory}
    if scenario.is_mig:
        driver.add_gpu("gpu0", mig_mode=1, **memory)
        values.update(model="H100 MIG 3g.40gb", uuid="MIG-0", mig_of="gpu0", gpu_instance=1)
    driver.add_gpu(scenario.device, sample_period_s=scenario.period_s, **values)
    for name, value in scenario.clock.items():
        driver.add(name, value, scenario.device)
    driver.run(scenario.timeline, scenario.device)
    for row in FAULTS[scenario.fault]:
        driver.add(row.name, row.value, scenario.device, row.key, at_s=row.at_s)
    place, device = scenario.place, scenario.device
    traces = FakeTraces(on_host=place == "host")
    traces.compute(MAIN.pid, 0)
    kind = "mps_memory_bytes" if scenario.fault == "MPS" else "process_memory_bytes"
    pid = (
        MAIN.pid
        if place in ("host", "container that translates", "container without memory")
        else HOST_PID
    )
    held_bytes = 0 if place == "container without memory" else 18 * GIB
    if place == "WSL":
        traces.devices[MAIN.pid] = frozenset({"/dev/dxg"})
        for name in ("Compute", "Graphics", "MPSCompute"):
            for version in ("v2", "v3"):
                driver.add(
                    "error", NOT_SUPPORTED, device, f"nvmlDeviceGet{name}RunningProcesses_{version}"
                )
    elif place != "sandbox":
        driver.add(kind, held_bytes, device, pid)
        driver.add(kind, GIB, device, HOST_PID + 7)  # of someone else
    return traces


UTILIZATION = "gpu_utilization_share"
_LATE_S = 0.025
"""By how much a sample may be late: what lies between two looks while the offset is estimated, and
a little drift.
"""
_SETTLED_S = 4.5
_LONGEST_GAP_S = 3.1
_FINE_S = 0.05
"""Samples of shorter periods are put together: their values do not identify them."""
Point = tuple[float, float]


class Playing:
    """Plays scenarios one after the other on one library."""

    def __init__(self, library: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._library, self._folder, self._monkeypatch = library, folder, monkeypatch
        self._count = 0

    def begin(self) -> SimulatedDriver:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        driver = SimulatedDriver(self._library, folder)
        driver.install(self._monkeypatch)
        self._monkeypatch.delenv(
            "FAKE_NVML_CALLS"
        )  # writing down each call takes longer than the call
        driver.set_now(0)
        return driver

    def play(self, scenario: Scenario) -> GpuRoom:
        driver = self.begin()
        return let_run(GpuRoom(driver, set_up(driver, scenario)))


def let_run(room: GpuRoom) -> GpuRoom:
    room.read()
    room.go_on(SECONDS)
    return room


@pytest.fixture
def playing(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playing:
    return Playing(nvml_library, tmp_path, monkeypatch)


def of(place: str) -> Iterator[Scenario]:
    """Yield a third of a place's scenarios: other faults and periods than of the next place."""
    return (scenario for scenario in list(scenarios())[::3] if scenario.place == place)


def is_sample(scenario: Scenario, at_s: float, share: float, before_s: float) -> bool:
    """Say whether a point is the truth of its time: the mean of the driver's period that ends
    there.
    """
    timeline, period_s = scenario.timeline, scenario.period_s
    if at_s <= before_s:
        return False
    if scenario.is_mig or period_s < _FINE_S:
        tolerance = 0.02 if scenario.is_mig else (_LATE_S + period_s) / (at_s - before_s)
        return abs(timeline.busy_share(before_s, at_s) - share) < tolerance
    late_s = period_s if scenario.fault == "batches of a second" else _LATE_S
    ends_s = (number * period_s for number in range(1, int(at_s / period_s + 0.01) + 1))
    return any(
        -0.002 <= at_s - end_s <= late_s
        and abs(timeline.busy_share(end_s - period_s, end_s) - share) < 0.011
        for end_s in ends_s
    )


def is_current(scenario: Scenario, at_s: float, share: float) -> bool:
    """Say whether a point is what the driver says of the period before it, to the whole percent."""
    end_s = int(at_s / scenario.period_s + 1e-6) * scenario.period_s
    busy = scenario.timeline.busy_share(end_s - scenario.period_s, end_s) if end_s else 0.0
    return abs(busy - share) < 0.011


def wrong_points(scenario: Scenario, points: list[Point]) -> Iterator[Point]:
    for place, (at_s, share) in enumerate(points):
        before_s = max(points[place - 1][0] if place else 0.0, at_s - 1.1)
        if not is_sample(scenario, at_s, share, before_s) and not is_current(scenario, at_s, share):
            yield at_s, share


def longest_gap_s(points: list[Point]) -> float:
    times = [_SETTLED_S, *(at_s for at_s, _ in points if at_s > _SETTLED_S), float(SECONDS)]
    return max(after - before for before, after in pairwise(times))


def judge(scenario: Scenario, room: GpuRoom) -> Iterator[str]:
    """Yield what is amiss with what was read."""
    points = room.series(UTILIZATION)
    yield from (
        f"{at_s:.3f} s: {share} is not true"
        for at_s, share in list(wrong_points(scenario, points))[:2]
    )
    times = [at_s for at_s, _ in points]
    if times != sorted(set(times)):
        yield "times go back"
    if bool(room.gpus.lost) != (scenario.fault == "falls off the bus"):
        yield f"lost: {room.gpus.lost}"
    is_said = any("no utilization" in remark for remark in room.remarks)
    if not points and not is_said:
        yield "nothing read, and nothing said"
    elif not room.gpus.lost and not is_said:
        if longest_gap_s(points) > _LONGEST_GAP_S:
            yield f"nothing for {longest_gap_s(points):.1f} s, and nothing said"
        steps = step_function(PointRow(int(at_s * SECOND_NS), share) for at_s, share in points)
        mean, known_ns = steps.mean(int(_SETTLED_S * SECOND_NS), int(times[-1] * SECOND_NS))
        truth = scenario.timeline.busy_share(_SETTLED_S, times[-1])
        # One value a second is of the driver's last period alone, and may go in step with the loop:
        # that is said.
        is_coarse = any("current value" in remark for remark in room.remarks)
        if known_ns < (0.7 if is_coarse else 0.85) * (times[-1] - _SETTLED_S) * SECOND_NS:
            yield f"known for {known_ns / SECOND_NS:.1f} s of {SECONDS}"
        if abs(mean - truth) > 0.06 and not is_coarse:
            yield f"a mean of {mean:.2f} where {truth:.2f} is true"


def is_called_unused(room: GpuRoom, path: Path) -> bool:
    write_case(path, HEALTHY, seconds=SECONDS, more=[*room.devices, *room.taken])
    found = diagnose(path, gpu_unused)
    path.unlink()
    return found is not None


@pytest.mark.parametrize("place", PLACES)
def test_readings_are_true_or_it_is_said_why_they_are_missing_and_no_gpu_that_computes_is_called_unused(
    place: str, playing: Playing, tmp_path: Path
) -> None:
    amiss = []
    for scenario in of(place):
        room = playing.play(scenario)
        amiss += [f"{scenario}: {words}" for words in judge(scenario, room)]
        if scenario.period_s == 0.2:
            assert room.devices, scenario
            amiss += (
                [f"{scenario}: called unused"]
                if is_called_unused(room, tmp_path / "run.profd")
                else []
            )
    assert amiss == []


def test_a_gpu_that_is_there_and_rests_is_called_unused(playing: Playing, tmp_path: Path) -> None:
    driver = playing.begin()
    driver.add_gpu(utilization_share=0)
    assert is_called_unused(
        let_run(GpuRoom(driver, FakeTraces(), everything=True)), tmp_path / "run.profd"
    )


def test_the_scenarios_are_those_that_were_meant() -> None:
    assert len({str(one) for one in scenarios()}) == 480
    found = [one for place in PLACES for one in of(place)]
    assert {(one.fault, one.period_s) for one in found} == {*itertools.product(FAULTS, PERIODS_S)}
    assert {one.fault for one in found} == set(FAULTS)
    assert len({(str(one.clock), one.loop) for one in found}) == 20
