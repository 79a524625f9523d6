"""What a GPU says of itself at one moment: memory, power, temperature, clocks, throttling, errors.

Each gauge is a few lines that turn NVML's units into those of the series; what the device lacks yields nothing. The
moment, and how often, are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.nvml import Answer, Nvml
from profd.daemon.store.records import Point

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
