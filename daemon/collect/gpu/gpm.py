"""How full a GPU is, not only whether it is busy: the driver's GPM metrics, on Hopper and later.

A metric is a mean between two snapshots that the device fills; one snapshot a reading, compared with the one before.
Owns the snapshots and their memory. Where there is no GPM nothing is yielded and nothing asked again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.nvml import Answer, Nvml
from profd.daemon.store.records import Point

_MIB = 1 << 20
_VERSION = 1
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
    """The metrics of one device."""

    def __init__(self) -> None:
        self._snapshots: list[Answer] = []
        self._has_first = False
        self._is_there: bool | None = None

    def read(self, nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
        """Yield the means since the last reading; nothing at the first."""
        if self._is_there is None:
            self._is_there = self._set_up(nvml, gpu)
        if not self._is_there or not self._fill(nvml, gpu):
            self._has_first = False
            return
        if self._has_first:
            yield from self._compare(nvml, gpu)
        self._snapshots.reverse()
        self._has_first = True

    def close(self, nvml: Nvml) -> None:
        """Give the memory of the snapshots back."""
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
        self._request.version, self._request.numMetrics = _VERSION, len(METRICS)
        # Looked up once: each way into a structure of NVML's module is a detour through Python.
        self._metrics = self._request.metrics
        for place, number in enumerate(METRICS):
            self._metrics[place].metricId = number
        return True

    def _fill(self, nvml: Nvml, gpu: Gpu) -> bool:
        """Take a snapshot into the second of the two."""
        snapshot = self._snapshots[1]
        if gpu.parent is not None:
            taken = nvml.ask(gpu.parent.handle, "nvmlGpmMigSampleGet", gpu.instance, then=(snapshot,))
        else:
            taken = nvml.ask(gpu.handle, "nvmlGpmSampleGet", then=(snapshot,))
        return taken is not None

    def _compare(self, nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
        self._request.sample1, self._request.sample2 = self._snapshots
        if nvml.ask_driver("nvmlGpmMetricsGet", self._request) is None:
            return
        for metric, (name, factor) in zip(self._metrics, METRICS.values(), strict=False):
            if metric.nvmlReturn == 0 and math.isfinite(value := metric.value):
                yield Point(name, value * factor, device=gpu.name)
