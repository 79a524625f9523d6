"""Utilization and traffic of a GPU: the driver's buffer of samples, GPM metrics, PCIe and NVLink.

The driver samples several times a second by itself; read once a second, the buffer gives all of it. A sample says
which share of the time since the one before any kernel ran.

A GPM metric is a mean between two snapshots that the device fills, one a reading.

Traffic comes from counters where the device has them, else from a measurement that the driver makes when asked. The
latter holds up the asking thread for some 20 ms a direction, and sees that time alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.gpu.devices import Gpu
from profd.daemon.gpu.nvml import Answer, Nvml
from profd.daemon.store.records import Point

_GPU_UTILIZATION_SAMPLES = 1
FINEST_NS = 50 * MILLISECOND_NS
"""Samples closer to each other than this are put together, so that no driver can flood a run file."""
_FUTURE_NS = SECOND_NS
"""A sample later than now by more than this is none: the wall clock was set back after it."""


class UtilizationSamples:
    """The samples of one GPU, each read once."""

    def __init__(self, clock: Clock, since_ns: int) -> None:
        """Begin at ``since_ns``: earlier samples are left in the driver's buffer."""
        self._clock = clock
        self._last_ns = since_ns

    def read(self, nvml: Nvml, gpu: Gpu) -> list[tuple[int, float]] | None:
        """Return the new samples in order of time, or None where the device has no such buffer.

        Each is a time in ns, and the share of the time since the sample before in which the GPU was busy.
        """
        now_ns = self._clock.now_ns()
        # The driver's times are those of the wall clock as it goes, the run's of the wall clock as it was.
        jump_ns = self._clock.wall_jump_ns()
        last_us = max(self._last_ns + jump_ns, 0) // MICROSECOND_NS
        answer = nvml.ask(gpu.handle, "nvmlDeviceGetSamples", _GPU_UTILIZATION_SAMPLES, then=(last_us,))
        if answer is None:
            lacks = ("nvmlDeviceGetSamples", (_GPU_UTILIZATION_SAMPLES,)) in gpu.handle.lacking
            return None if lacks else []
        kind, samples = answer
        percents = {
            sample.timeStamp * MICROSECOND_NS - jump_ns: _number(kind, sample.sampleValue) for sample in samples
        }
        new = [(at_ns, percents[at_ns]) for at_ns in sorted(percents) if self._last_ns < at_ns <= now_ns + _FUTURE_NS]
        before_ns, self._last_ns = self._last_ns, new[-1][0] if new else self._last_ns
        return list(_put_together(before_ns, [(at_ns, percent) for at_ns, percent in new if 0 <= percent <= 100]))


def _put_together(before_ns: int, samples: list[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield samples at least ``FINEST_NS`` apart; closer ones become one, their mean weighted by their lengths."""
    busy, start_ns, since_ns = 0.0, before_ns, before_ns
    for position, (at_ns, percent) in enumerate(samples):
        busy += percent / 100 * (at_ns - since_ns)
        since_ns = at_ns
        if at_ns - start_ns >= FINEST_NS or position == len(samples) - 1:
            yield at_ns, busy / (at_ns - start_ns)
            busy, start_ns = 0.0, at_ns


def _number(kind: int, value: Answer) -> float:
    """Return the number in a union of NVML's, by its type: a double, an unsigned int (4 bytes), or one of 8 bytes."""
    number: float = value.dVal if kind == 0 else value.uiVal if kind == 1 else value.ullVal
    return number


_MIB = 1 << 20
# NVML's number of a metric → series, and what its value is multiplied with.
METRICS = {
    1: ("gpu_graphics_active_share", 0.01),
    2: ("gpu_sm_active_share", 0.01),
    3: ("gpu_sm_occupancy_share", 0.01),
    5: ("gpu_tensor_active_share", 0.01),
    10: ("gpu_dram_bandwidth_share", 0.01),
    20: ("gpu_pcie_sent_bytes_per_s", _MIB),
    21: ("gpu_pcie_received_bytes_per_s", _MIB),
    60: ("gpu_nvlink_received_bytes_per_s", _MIB),
    61: ("gpu_nvlink_sent_bytes_per_s", _MIB),
}


class Gpm:
    """The GPM metrics of one device, with the two snapshots. A device without GPM yields nothing and is asked once."""

    def __init__(self) -> None:
        self._snapshots: list[Answer] = []
        self._has_first = False
        self._is_there: bool | None = None

    def read(self, nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
        """Yield the means since the last reading; nothing at the first."""
        if self._is_there is None:
            self._is_there = self._set_up(nvml, gpu)
        filled = None
        if self._is_there:
            target = (self._snapshots[1],)
            if gpu.parent is None:
                filled = nvml.ask(gpu.handle, "nvmlGpmSampleGet", then=target)
            else:
                filled = nvml.ask(gpu.parent.handle, "nvmlGpmMigSampleGet", gpu.instance, then=target)
        if filled is None:
            self._has_first = False
            return
        if self._has_first:
            self._request.sample1, self._request.sample2 = self._snapshots
            if nvml.ask_driver("nvmlGpmMetricsGet", self._request) is not None:
                for metric, (name, factor) in zip(self._metrics, METRICS.values(), strict=False):
                    if metric.nvmlReturn == 0 and math.isfinite(value := metric.value):
                        yield Point(name, value * factor, device=gpu.name)
        self._snapshots.reverse()
        self._has_first = True

    def close(self, nvml: Nvml) -> None:
        for snapshot in self._snapshots:
            nvml.ask_driver("nvmlGpmSampleFree", snapshot)
        self._snapshots = []
        self._is_there = False

    def _set_up(self, nvml: Nvml, gpu: Gpu) -> bool:
        whole = gpu.parent or gpu
        support = nvml.ask(whole.handle, "nvmlGpmQueryDeviceSupport")
        if support is None or not support.isSupportedDevice or gpu.is_mig_parent:
            return False
        snapshots = [nvml.ask_driver("nvmlGpmSampleAlloc") for _ in range(2)]
        self._snapshots = [snapshot for snapshot in snapshots if snapshot is not None]
        if len(self._snapshots) < 2:
            return False
        self._request = nvml.module.c_nvmlGpmMetricsGet_t()
        self._request.version, self._request.numMetrics = 1, len(METRICS)
        # Looked up once: each way into a structure of NVML's module is a detour through Python.
        self._metrics = self._request.metrics
        for place, number in enumerate(METRICS):
            self._metrics[place].metricId = number
        return True


_ALL_LINKS = 0xFFFFFFFF
_KIB = 1 << 10
_LACKING = (2, 3, 4)  # an unknown field, one that the device does not have, one that is not for us
# (NVML's number of the field, its scope) → series, bytes per unit of the counter.
COUNTERS = {
    (197, 0): ("gpu_pcie_sent_bytes_per_s", 1),
    (198, 0): ("gpu_pcie_received_bytes_per_s", 1),
    (138, _ALL_LINKS): ("gpu_nvlink_sent_bytes_per_s", _KIB),
    (139, _ALL_LINKS): ("gpu_nvlink_received_bytes_per_s", _KIB),
}
_MEASURED = {"gpu_pcie_sent_bytes_per_s": 0, "gpu_pcie_received_bytes_per_s": 1}


class Traffic:
    """The rates of one GPU; keeps the last reading of each counter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[str, tuple[int, float]] = {}
        self._fields = tuple(COUNTERS)

    def read(self, nvml: Nvml, gpu: Gpu, known: Collection[str]) -> Iterator[Point]:
        """Yield the rates that are not ``known`` already; at the first reading none that need a counter."""
        counts = self._counts(nvml, gpu) if any(COUNTERS[field][0] not in known for field in self._fields) else {}
        for name, count in counts.items():
            if name not in known:
                now_ns, before = self._clock.now_ns(), self._before.get(name)
                self._before[name] = (now_ns, count)
                # A counter that wrapped or was reset says nothing of this second.
                if before is not None and now_ns > before[0] and count >= before[1]:
                    rate = (count - before[1]) * SECOND_NS / (now_ns - before[0])
                    yield Point(name, rate, device=gpu.name)
        for name, direction in _MEASURED.items():
            if name not in counts and name not in known:
                kilobytes_per_s = nvml.ask(gpu.handle, "nvmlDeviceGetPcieThroughput", direction)
                if kilobytes_per_s is not None:
                    yield Point(name, kilobytes_per_s * 1000.0, device=gpu.name)

    def _counts(self, nvml: Nvml, gpu: Gpu) -> dict[str, float]:
        answers = nvml.ask(gpu.handle, "nvmlDeviceGetFieldValues", then=(self._fields,))
        answered = list(zip(self._fields, answers or (), strict=False))
        # What the device lacks is not asked for again.
        lacking = {field for field, answer in answered if answer.nvmlReturn in _LACKING}
        self._fields = tuple(field for field in self._fields if field not in lacking)
        return {
            COUNTERS[field][0]: _number(answer.valueType, answer.value) * COUNTERS[field][1]
            for field, answer in answered
            if answer.nvmlReturn == 0
        }
