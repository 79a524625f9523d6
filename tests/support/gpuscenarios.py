"""Machines as containers, sandboxes and drivers make them: the product of what drivers do and where a run lives.

Each is one GPU with a known timeline of kernels, and one training process that computes on it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from support.gpusets import MAIN
from support.gpusim import SimulatedDriver, Timeline
from support.gputraces import FakeTraces

SECONDS = 16
BREAK_S = 8.0
GIB = 1 << 30
UNKNOWN, NO_PERMISSION, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 999, 4, 2, 3, 6
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
PLACES = ("host", "container that translates", "container without memory", "container", "sandbox", "WSL")
FAULTS = (
    "none",
    "dry buffer",
    "empty buffer",
    "samples fail",
    "samples refused in mid-run",
    "no samples",
    "no samples and no rates",
    "lists fault of all ones",
    "lists fault of zeros",
    "metrics refused in mid-run",
    "falls off the bus",
    "unified memory",
    "MPS",
    "MIG",
    "MIG without metrics",
    "batches of a second",
)


class Scenario(NamedTuple):
    """A machine: where the run lives, what is the matter with the driver, its sampling period, clock, and the loop."""

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
    """Yield each place with each fault and each period; clocks and loops go round, always in the same order."""
    chance = random.Random(23)
    others = list(itertools.product(CLOCKS, LOOPS))
    for number, (place, fault, period_s) in enumerate(itertools.product(PLACES, FAULTS, PERIODS_S)):
        if number % len(others) == 0:
            chance.shuffle(others)
        yield Scenario(place, fault, period_s, *others[number % len(others)])


def set_up(driver: SimulatedDriver, scenario: Scenario) -> FakeTraces:
    """Give a driver its device and its faults; returns what /proc says of the training process."""
    memory = {"memory_used_bytes": 20 * GIB, "memory_total_bytes": 80 * GIB, "memory_reserved_bytes": GIB // 2}
    values: dict[str, object] = {} if scenario.fault == "unified memory" else {**memory}
    if scenario.is_mig:
        driver.add_gpu("gpu0", mig_mode=1, **memory)
        values.update(model="H100 MIG 3g.40gb", uuid="MIG-0", mig_of="gpu0", gpu_instance=1)
    driver.add_gpu(scenario.device, sample_period_s=scenario.period_s, **values)
    for name, value in scenario.clock.items():
        driver.add(name, value, scenario.device)
    driver.run(scenario.timeline, scenario.device)
    _break(driver, scenario)
    return _live(driver, scenario)


def _break(driver: SimulatedDriver, scenario: Scenario) -> None:
    fault, device = scenario.fault, scenario.device
    samples, rates = "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"
    if fault in ("dry buffer", "empty buffer"):
        driver.add("dry_after_s", 0.5, device)
        driver.add("dry_is_empty", "" if fault == "dry buffer" else 1, device)
    elif fault == "samples fail":
        driver.add("error", UNKNOWN, device, samples)
    elif fault == "samples refused in mid-run":
        driver.add("error", NO_PERMISSION, device, samples, at_s=BREAK_S)
    elif fault == "no samples":
        driver.add("error", NOT_SUPPORTED, device, samples)
    elif fault == "no samples and no rates":
        driver.add("error", INVALID_ARGUMENT, device, samples)
        driver.add("error", NOT_SUPPORTED, device, rates)
    elif fault.startswith("lists fault"):
        driver.add("process_list_fault", 1 if fault.endswith("ones") else 2, device)
    elif fault == "metrics refused in mid-run":
        driver.add("error", NO_PERMISSION, device, "nvmlGpmSampleGet", at_s=BREAK_S)
    elif fault == "falls off the bus":
        driver.add("lost", 1, device, at_s=BREAK_S)
    elif fault == "batches of a second":
        driver.add("sample_batch_s", 1, device)
    elif fault == "MIG":
        driver.add("gpm_of_utilization", 1, device, 1)
    if fault == "metrics refused in mid-run":
        driver.add("gpm_of_utilization", 1, device, 1)


def _live(driver: SimulatedDriver, scenario: Scenario) -> FakeTraces:
    place, device = scenario.place, scenario.device
    traces = FakeTraces(on_host=place == "host")
    traces.compute(MAIN.pid, 0)
    kind = "mps_memory_bytes" if scenario.fault == "MPS" else "process_memory_bytes"
    pid = MAIN.pid if place in ("host", "container that translates", "container without memory") else HOST_PID
    memory = 0 if place == "container without memory" else 18 * GIB
    if place == "WSL":
        traces.devices[MAIN.pid] = frozenset({"/dev/dxg"})
        for name in ("Compute", "Graphics", "MPSCompute"):
            for version in ("v2", "v3"):
                driver.add("error", NOT_SUPPORTED, device, f"nvmlDeviceGet{name}RunningProcesses_{version}")
    elif place != "sandbox":
        driver.add(kind, memory, device, pid)
        driver.add(kind, GIB, device, HOST_PID + 7)  # of someone else
        driver.add("process_sm_share", 0.5, device, pid if place == "host" else HOST_PID)
    return traces
