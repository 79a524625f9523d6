"""NVML as a source of GPU readings.

It says which function tells what, in which unit, and what its drivers get wrong.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator

from profd.daemon.clock import Clock
from profd.daemon.gpu.answers import (
    BusySample,
    DeviceMemory,
    DriverEvent,
    NoDriverAnswer,
    Why,
)
from profd.daemon.gpu.devices import GpuDevice, GpuNames
from profd.daemon.gpu.nvml import Answer, Nvml, number_of

_GPU_UTILIZATION_SAMPLES = 1
_HERTZ_PER_MHZ = 1e6
_MIB, _KIB = 1 << 20, 1 << 10
_GAUGES: dict[str, tuple[str, tuple[int, ...], float]] = {
    "gpu_power_watts": ("nvmlDeviceGetPowerUsage", (), 1e-3),
    "gpu_energy_joules": ("nvmlDeviceGetTotalEnergyConsumption", (), 1e-3),
    "gpu_sm_clock_hz": ("nvmlDeviceGetClockInfo", (1,), _HERTZ_PER_MHZ),
    "gpu_memory_clock_hz": ("nvmlDeviceGetClockInfo", (2,), _HERTZ_PER_MHZ),
    "gpu_temperature_celsius": ("nvmlDeviceGetTemperature", (0,), 1.0),
    "gpu_pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", (), 1.0),
    "gpu_pcie_lanes": ("nvmlDeviceGetCurrPcieLinkWidth", (), 1.0),
    "gpu_pcie_generation_most": ("nvmlDeviceGetMaxPcieLinkGeneration", (), 1.0),
    "gpu_pcie_lanes_most": ("nvmlDeviceGetMaxPcieLinkWidth", (), 1.0),
    "gpu_power_limit_watts": ("nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    # Since the driver's start.
    "gpu_ecc_corrected_count": ("nvmlDeviceGetTotalEccErrors", (0, 0), 1.0),
    "gpu_ecc_uncorrected_count": ("nvmlDeviceGetTotalEccErrors", (1, 0), 1.0),
    "gpu_throttle_reasons_mask": ("nvmlDeviceGetCurrentClocksEventReasons", (), 1.0),
    "gpu_power_capped_s": ("nvmlDeviceGetViolationStatus", (0,), 1e-9),
    "gpu_heat_slowed_s": ("nvmlDeviceGetViolationStatus", (1,), 1e-9),
}
"""Series → NVML's function, which of its quantities, and the factor of its answer.

The quantities are numbers of NVML's enums, which are part of its binary interface; its module is
loaded late.
"""
_LISTS = {
    kind: f"nvmlDeviceGet{name}RunningProcesses_v3"
    for kind, name in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute"))
}
_NO_PIDS = (0, 0xFFFFFFFF)
"""Numbers among the PIDs if a driver fills more bytes than the structure has.

Drivers 535.43 to 535.86 fill 32 bytes a process, but the structure has 24.
"""
_ALL_LINKS = 0xFFFFFFFF
_LACKING = (2, 3, 4)  # an unknown field, one that the device does not have, one that is not for us
_NVLINK = {"gpu_nvlink_sent_bytes_per_s": 138, "gpu_nvlink_received_bytes_per_s": 139}
"""Series → NVML's number of the counter that it is the growth of, in KiB."""
_PCIE = {"gpu_pcie_sent_bytes_per_s": 0, "gpu_pcie_received_bytes_per_s": 1}
METRICS = {
    "gpu_graphics_active_share": (1, 0.01),
    "gpu_sm_active_share": (2, 0.01),
    "gpu_sm_occupancy_share": (3, 0.01),
    "gpu_tensor_active_share": (5, 0.01),
    "gpu_dram_bandwidth_share": (10, 0.01),
    "gpu_pcie_sent_bytes_per_s": (20, _MIB),
    "gpu_pcie_received_bytes_per_s": (21, _MIB),
    "gpu_nvlink_received_bytes_per_s": (60, _MIB),
    "gpu_nvlink_sent_bytes_per_s": (61, _MIB),
}
"""Series → NVML's number of a GPM metric, and what its value is multiplied with."""
_DOUBLE_BIT_ECC, _XID = 0x2, 0x8


class NvmlSource(Nvml):
    """The driver, once it is open. It belongs to one thread; others may read ``calling`` only.

    Every method with a ``gpu`` raises ``NoDriverAnswer``; ``processes`` may leave out what it
    lacks.
    """

    def __init__(self, clock: Clock, names: GpuNames) -> None:
        super().__init__(clock)
        self._names = names
        self._windows: dict[str, GpmWindow] = {}
        self._events: Answer = None
        self._devices: dict[int | None, str] = {}

    def close(self) -> None:
        for window in self._windows.values():
            window.close()
        self._windows = {}
        if self._events is not None:
            self.ask("nvmlEventSetFree", self._events)
            self._events = None
        super().close()

    def gpus(self) -> list[GpuDevice]:
        """Return the GPUs that answer, each followed by its parts."""
        found: list[GpuDevice] = []
        for index in range(self.ask("nvmlDeviceGetCount") or 0):
            handle = self.ask("nvmlDeviceGetHandleByIndex", index)
            if handle is None:  # fallen off the bus, or not ours to use
                continue
            try:
                uuid = self.call("nvmlDeviceGetUUID", handle)
            except NoDriverAnswer as error:
                if error.why is Why.LOST:
                    continue
                uuid = f"index {index}"
            gpu = GpuDevice(
                handle=handle,
                name=self._names.of(uuid, f"gpu{index}"),
                index=index,
                uuid=uuid,
                model=self.ask("nvmlDeviceGetName", handle) or "GPU",
                minor=self.ask("nvmlDeviceGetMinorNumber", handle),
            )
            found += [gpu, *self._instances(gpu)]
        return found

    def driver_version(self) -> str:
        version: str | None = self.ask("nvmlSystemGetDriverVersion")
        return version or ""

    def has_activity(self, gpu: GpuDevice) -> bool:
        support = self.call("nvmlGpmQueryDeviceSupport", (gpu.parent or gpu).handle)
        return bool(support.isSupportedDevice) and not gpu.is_mig_parent

    def samples(self, gpu: GpuDevice, after_us: int) -> list[BusySample]:
        """Return what the driver keeps of its samples after a stamp of its own; 0 gives all."""
        kind, samples = self.call(
            "nvmlDeviceGetSamples", gpu.handle, _GPU_UTILIZATION_SAMPLES, after_us
        )
        found = ((sample.timeStamp, number_of(kind, sample.sampleValue)) for sample in samples)
        return [
            BusySample(stamp_us, percent / 100)
            for stamp_us, percent in found
            if stamp_us and 0 <= percent <= 100
        ]

    def utilization(self, gpu: GpuDevice) -> float:
        """Return the share of the driver's last sampling period in which the GPU was busy."""
        rates = self.call("nvmlDeviceGetUtilizationRates", gpu.handle)
        if rates.gpu > 100:
            raise NoDriverAnswer(Why.FAILED, f"nvmlDeviceGetUtilizationRates says {rates.gpu} %")
        return float(rates.gpu) / 100

    def memory(self, gpu: GpuDevice) -> DeviceMemory:
        version = getattr(self.module, "nvmlMemory_v2", None)
        newer = self.ask("nvmlDeviceGetMemoryInfo", gpu.handle, version) if version else None
        if newer is not None:  # before R510 what the driver keeps for itself counts as used
            return DeviceMemory(int(newer.total - newer.free - newer.reserved), int(newer.total))
        memory = self.call("nvmlDeviceGetMemoryInfo", gpu.handle)
        return DeviceMemory(int(memory.used), int(memory.total))

    def gauge(self, gpu: GpuDevice, name: str) -> float:
        """Return the value of a series as it is now, or of a counter that only grows."""
        function, what, factor = _GAUGES[name]
        answer = self.call(function, gpu.handle, *what)
        value: Answer = getattr(answer, "violationTime", answer)
        return float(value) * factor

    def processes(self, gpu: GpuDevice, kind: str) -> dict[int, int | None]:
        """Return the bytes of each process by PID, None if the driver does not tell them."""
        listed = self.call(_LISTS[kind], gpu.handle)
        if any(process.pid in _NO_PIDS for process in listed):
            raise NoDriverAnswer(Why.FAILED, f"{_LISTS[kind]}: a list that cannot be")
        # In a container some drivers know the process and say 0 bytes: it is not there without any.
        return {one.pid: int(one.usedGpuMemory or 0) or None for one in listed}

    def nvlink_bytes(self, gpu: GpuDevice, name: str) -> float:
        """Return how many bytes have gone over all links so far, for a series of their rate."""
        question = [(_NVLINK[name], _ALL_LINKS)]
        (answer,) = self.call("nvmlDeviceGetFieldValues", gpu.handle, question)
        if answer.nvmlReturn:
            why = Why.LACKING if answer.nvmlReturn in _LACKING else Why.FAILED
            raise NoDriverAnswer(why, f"nvmlDeviceGetFieldValues: no {name}")
        return number_of(answer.valueType, answer.value) * _KIB

    def pcie_bytes_per_s(self, gpu: GpuDevice, name: str) -> float:
        """Measure the bytes a second of a series; takes some 20 ms, and sees those alone."""
        kilobytes_per_s = self.call("nvmlDeviceGetPcieThroughput", gpu.handle, _PCIE[name])
        return float(kilobytes_per_s) * 1000.0

    def activity(self, gpu: GpuDevice) -> dict[str, float]:
        """Return means by series since this was last asked; of the first time nothing."""
        window = self._windows.get(gpu.name)
        if window is None:
            if not self.has_activity(gpu):
                raise NoDriverAnswer(Why.LACKING, "nvmlGpmQueryDeviceSupport: not supported")
            window = self._windows[gpu.name] = GpmWindow(self, gpu)
        return window.read()

    def wait_event(self, timeout_ms: int) -> DriverEvent:
        """Wait for an error that the driver reports; raises ``NoDriverAnswer`` if none came."""
        if self._events is None:
            self._register()
        event = self.call("nvmlEventSetWait_v2", self._events, timeout_ms)
        name = self._devices.get(_address(event.device), "a GPU")
        return DriverEvent(name, event.eventData if event.eventType == _XID else None)

    def _register(self) -> None:
        events, self._devices = self.call("nvmlEventSetCreate"), {}
        self._events = events
        for gpu in self.gpus():
            supported = (
                self.ask("nvmlDeviceGetSupportedEventTypes", gpu.handle)
                if gpu.parent is None
                else None
            )
            wanted = (supported or 0) & (_XID | _DOUBLE_BIT_ECC)
            if wanted:
                self.ask("nvmlDeviceRegisterEvents", gpu.handle, wanted, events)
                self._devices[_address(gpu.handle)] = gpu.name
        if not self._devices:
            raise NoDriverAnswer(
                Why.LACKING, "nvmlDeviceGetSupportedEventTypes: no device reports errors"
            )

    def _instances(self, gpu: GpuDevice) -> Iterator[GpuDevice]:
        mode = self.ask("nvmlDeviceGetMigMode", gpu.handle)
        if mode is None or mode[0] != 1:  # not enabled
            return
        gpu.is_mig_parent = True
        for place in range(self.ask("nvmlDeviceGetMaxMigDeviceCount", gpu.handle) or 0):
            handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, place)
            if handle is None:  # an instance may be made there later
                continue
            uuid = self.ask("nvmlDeviceGetUUID", handle) or f"{gpu.uuid} instance {place}"
            yield GpuDevice(
                handle=handle,
                name=self._names.of(uuid, f"{gpu.name}-mig{place}"),
                index=gpu.index,
                uuid=uuid,
                model=self.ask("nvmlDeviceGetName", handle) or gpu.model,
                minor=gpu.minor,
                parent=gpu,
                instance=self.ask("nvmlDeviceGetGpuInstanceId", handle),
            )


class GpmWindow:
    """The means of a device's metrics from one reading to the next, by two snapshots in turn.

    A driver renews what snapshots hold ten times a second, and shows it some 20 ms later (seen on
    an H200). So the end of a mean is 20 to 120 ms before its reading, and two snapshots of one
    renewal have zeros between them.
    """

    def __init__(self, nvml: Nvml, gpu: GpuDevice) -> None:
        self._nvml = nvml
        self._earlier, self._later = (nvml.call("nvmlGpmSampleAlloc") for _ in range(2))
        self._is_taken = False
        self._take: tuple[Answer, ...] = ("nvmlGpmSampleGet", gpu.handle)
        if gpu.parent is not None:
            self._take = "nvmlGpmMigSampleGet", gpu.parent.handle, gpu.instance
        self._request = request = nvml.module.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = 1, len(METRICS)
        for metric, (number, _) in zip(request.metrics, METRICS.values(), strict=False):
            metric.metricId = number

    def read(self) -> dict[str, float]:
        """Return the means since the last reading; nothing at the first one."""
        was_taken, self._is_taken = self._is_taken, False
        self._earlier, self._later = self._later, self._earlier
        self._nvml.call(*self._take, self._later)
        self._is_taken = True
        if not was_taken:
            return {}
        self._request.sample1, self._request.sample2 = self._earlier, self._later
        self._nvml.call("nvmlGpmMetricsGet", self._request)
        answers = zip(self._request.metrics, METRICS.items(), strict=False)
        found = {
            name: one.value * factor for one, (name, (_, factor)) in answers if not one.nvmlReturn
        }
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def close(self) -> None:
        for snapshot in (self._earlier, self._later):
            self._nvml.ask("nvmlGpmSampleFree", snapshot)


def _address(pointer: Answer) -> int | None:
    return ctypes.cast(pointer, ctypes.c_void_p).value
