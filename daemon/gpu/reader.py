"""Reads all counters of one GPU, as points at their times.

Each gauge is a few lines that turn NVML's units into those of the series; what the device lacks yields nothing. The
moment, and how often, are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profd.daemon.clock import Clock
from profd.daemon.gpu.devices import Gpu
from profd.daemon.gpu.nvml import Answer, Nvml
from profd.daemon.gpu.processes import ProcessUtilization
from profd.daemon.gpu.utilization import Gpm, Traffic, UtilizationSamples
from profd.daemon.store.records import Identity, Point, PointsTaken

# NVML's enums, which are part of its binary interface; the module that names them is loaded late.
_TEMPERATURE_OF_GPU = 0
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_CORRECTED, _UNCORRECTED = 0, 1
_SINCE_DRIVER_LOAD = 0
_HERTZ_PER_MHZ = 1e6

# Reasons for a clock below what the device could do under its load: power cap, hardware slowdown, software and hardware
# thermal slowdown, power brake, board limit, reliability. Idle, and clocks that someone chose, are none.
THROTTLE_MASK = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400


def quick_gauges(nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
    """Yield what changes from second to second."""
    memory = nvml.ask(gpu.handle, "nvmlDeviceGetMemoryInfo")
    if memory is not None:
        yield _point(gpu, "gpu_memory_used_bytes", memory.used)
    if gpu.parent is not None:  # an instance has memory of its own; all the rest is its GPU's
        return
    yield from _scaled(gpu, "gpu_power_watts", nvml.ask(gpu.handle, "nvmlDeviceGetPowerUsage"), 1e-3)
    sm_clock = nvml.ask(gpu.handle, "nvmlDeviceGetClockInfo", _SM_CLOCK)
    yield from _scaled(gpu, "gpu_sm_clock_hz", sm_clock, _HERTZ_PER_MHZ)
    reasons = _throttle_reasons(nvml, gpu)
    if reasons is not None:
        yield _point(gpu, "gpu_throttle_reasons_mask", reasons & THROTTLE_MASK)
        yield _point(gpu, "gpu_throttled_share", 1.0 if reasons & THROTTLE_MASK else 0.0)


def calm_gauges(nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
    """Yield what takes seconds to change."""
    if gpu.parent is not None:
        return
    temperature = nvml.ask(gpu.handle, "nvmlDeviceGetTemperature", _TEMPERATURE_OF_GPU)
    yield from _scaled(gpu, "gpu_temperature_celsius", temperature)
    memory_clock = nvml.ask(gpu.handle, "nvmlDeviceGetClockInfo", _MEMORY_CLOCK)
    yield from _scaled(gpu, "gpu_memory_clock_hz", memory_clock, _HERTZ_PER_MHZ)


def slow_gauges(nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
    """Yield what hardly ever changes."""
    memory = nvml.ask(gpu.handle, "nvmlDeviceGetMemoryInfo")
    if memory is not None:
        yield _point(gpu, "gpu_memory_total_bytes", memory.total)
    if gpu.parent is not None:
        return
    # An idle link is put into a lower generation, so that the highest reading tells what it can carry.
    yield from _scaled(gpu, "gpu_pcie_generation", nvml.ask(gpu.handle, "nvmlDeviceGetCurrPcieLinkGeneration"))
    yield from _scaled(gpu, "gpu_pcie_lanes", nvml.ask(gpu.handle, "nvmlDeviceGetCurrPcieLinkWidth"))
    yield from _scaled(gpu, "gpu_power_limit_watts", nvml.ask(gpu.handle, "nvmlDeviceGetEnforcedPowerLimit"), 1e-3)
    for name, kind in (("gpu_ecc_corrected_count", _CORRECTED), ("gpu_ecc_uncorrected_count", _UNCORRECTED)):
        count = nvml.ask(gpu.handle, "nvmlDeviceGetTotalEccErrors", kind, _SINCE_DRIVER_LOAD)
        yield from _scaled(gpu, name, count)


def utilization_now(nvml: Nvml, gpu: Gpu) -> Iterator[Point]:
    """Yield the utilization as one reading gives it, for devices without a buffer of samples."""
    rates = nvml.ask(gpu.handle, "nvmlDeviceGetUtilizationRates")
    if rates is not None and rates.gpu <= 100:
        yield _point(gpu, "gpu_utilization_share", rates.gpu / 100)


def _throttle_reasons(nvml: Nvml, gpu: Gpu) -> int | None:
    """Return the bits of why clocks are low, by the function's newer name or by its older one."""
    for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        reasons: int | None = nvml.ask(gpu.handle, function)
        if reasons is not None:
            return reasons
    return None


def _scaled(gpu: Gpu, name: str, value: Answer, factor: float = 1.0) -> Iterator[Point]:
    if value is not None:
        yield _point(gpu, name, value * factor)


def _point(gpu: Gpu, name: str, value: float) -> Point:
    return Point(name, float(value), device=gpu.name)


# In readings. Throughput is a mean since it was last read, so that nothing of it is lost.
_THROUGHPUT_EVERY = 2
_CALM_EVERY = 5
_SLOW_EVERY = 10


class GpuReader:
    """One GPU, or MIG instance, that the run uses."""

    def __init__(self, nvml: Nvml, gpu: Gpu, clock: Clock, since_ns: int) -> None:
        """Read from ``since_ns`` on, as far as the driver remembers."""
        self.gpu = gpu
        self._nvml = nvml
        self._clock = clock
        self._samples = UtilizationSamples(clock, since_ns)
        self._shares = ProcessUtilization(clock, since_ns)
        self._gpm = Gpm()
        self._traffic = Traffic(clock)
        self._readings = 0

    def read(
        self, memory: Mapping[int, int | None] | None, identities: Mapping[int, Identity]
    ) -> Iterator[PointsTaken]:
        """Yield what is new; ``memory`` is that of all processes on it by host PID, ``identities`` are the run's.

        None where the processes were not asked for this time.
        """
        yield from self._utilization()
        at_ns = self._clock.now_ns()
        points = list(quick_gauges(self._nvml, self.gpu))
        # An instance has its utilization from there.
        if self._readings % _THROUGHPUT_EVERY == 0 or self.gpu.parent is not None:
            points += self._throughput()
        if self._readings % _CALM_EVERY == 0:
            points += calm_gauges(self._nvml, self.gpu)
        if self._readings % _SLOW_EVERY == 0:
            points += slow_gauges(self._nvml, self.gpu)
        if memory is not None:
            points += self._processes(memory, identities)
        self._readings += 1
        if points:
            yield PointsTaken(at_ns, tuple(points))

    def close(self) -> None:
        """Give back what the driver lent."""
        self._gpm.close(self._nvml)

    def _utilization(self) -> Iterator[PointsTaken]:
        """Yield the driver's samples, or one reading where it keeps none; MIG has neither, but GPM."""
        if self.gpu.parent is not None:
            return
        samples = self._samples.read(self._nvml, self.gpu)
        if samples is None:
            now = tuple(utilization_now(self._nvml, self.gpu))
            if now:
                yield PointsTaken(self._clock.now_ns(), now)
        for sample in samples or ():
            point = Point("gpu_utilization_share", sample.share, device=self.gpu.name)
            yield PointsTaken(sample.at_ns, (point,))

    def _throughput(self) -> list[Point]:
        points = list(self._gpm.read(self._nvml, self.gpu))
        if self.gpu.parent is not None:  # no buffer of samples, but the same quantity among the metrics
            active = [point.value for point in points if point.name == "gpu_graphics_active_share"]
            points += [Point("gpu_utilization_share", value, device=self.gpu.name) for value in active]
        else:
            points += self._traffic.read(self._nvml, self.gpu, {point.name for point in points})
        return points

    def _processes(self, memory: Mapping[int, int | None], identities: Mapping[int, Identity]) -> Iterator[Point]:
        """Yield the memory and the share of the time of the run's processes, as far as they are told."""
        ours = {pid: identities[pid] for pid in memory if pid in identities}
        shares = self._shares.read(self._nvml, self.gpu) if ours else {}
        for pid, identity in ours.items():
            held = memory[pid]
            if held is not None:
                yield Point("gpu_process_memory_bytes", float(held), identity, device=self.gpu.name)
            if pid in shares:
                yield Point("gpu_process_sm_share", shares[pid], identity, device=self.gpu.name)
