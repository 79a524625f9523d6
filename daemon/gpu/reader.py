"""Reads the GPUs that a run uses, as points at their times.

What a device lacks yields nothing. How often this happens is the caller's decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profd.daemon.clock import Clock
from profd.daemon.gpu.devices import Gpu, GpuNames, list_gpus
from profd.daemon.gpu.nvml import Answer, Nvml
from profd.daemon.gpu.processes import GpuUsers, ProcessUtilization, memory_by_pid
from profd.daemon.gpu.utilization import Gpm, Traffic, UtilizationSamples
from profd.daemon.store.records import DeviceSeen, Identity, Point, PointsTaken

# In readings. Each list of processes is put together by the driver. Throughput is a mean since it was last read, so
# that reading it less often loses nothing.
_PROCESSES_EVERY = 2
_THROUGHPUT_EVERY = 2
_CALM_EVERY = 5
_SLOW_EVERY = 10
_HERTZ_PER_MHZ = 1e6
_GAUGES = (
    (1, "gpu_power_watts", "nvmlDeviceGetPowerUsage", (), 1e-3),
    (1, "gpu_sm_clock_hz", "nvmlDeviceGetClockInfo", (1,), _HERTZ_PER_MHZ),
    (_CALM_EVERY, "gpu_temperature_celsius", "nvmlDeviceGetTemperature", (0,), 1.0),
    (_CALM_EVERY, "gpu_memory_clock_hz", "nvmlDeviceGetClockInfo", (2,), _HERTZ_PER_MHZ),
    # An idle link is put into a lower generation, so that the highest reading shows what it can carry.
    (_SLOW_EVERY, "gpu_pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", (), 1.0),
    (_SLOW_EVERY, "gpu_pcie_lanes", "nvmlDeviceGetCurrPcieLinkWidth", (), 1.0),
    (_SLOW_EVERY, "gpu_power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    (_SLOW_EVERY, "gpu_ecc_corrected_count", "nvmlDeviceGetTotalEccErrors", (0, 0), 1.0),  # since the driver's start
    (_SLOW_EVERY, "gpu_ecc_uncorrected_count", "nvmlDeviceGetTotalEccErrors", (1, 0), 1.0),
)
"""Every how many readings, series, NVML's function, which of its quantities, and what its answer is multiplied with.

The quantities are numbers of NVML's enums, which are part of its binary interface; its module is loaded late.
"""
# The function's newer name, and its older one.
_THROTTLE_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
# Reasons for a clock below what the device could do under its load: power cap, hardware slowdown, software and hardware
# thermal slowdown, power brake, board limit, reliability. Idle, and clocks that someone chose, are none.
THROTTLE_MASK = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400

_Memory = Mapping[int, int | None]
"""The bytes that each process has on a device, by host PID."""


class GpuReader:
    """Reads one GPU, or MIG instance, that the run uses."""

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

    def read(self, memory: _Memory | None, identities: Mapping[int, Identity]) -> Iterator[PointsTaken]:
        """Yield the new points; ``identities`` are the processes of the run by host PID.

        ``memory`` is None where the processes were not asked for this time.
        """
        if self.gpu.parent is None:  # MIG has no utilization but that of GPM
            yield from self._utilization()
        at_ns = self._clock.now_ns()
        points = list(self._gauges())
        if self.gpu.parent is not None:  # no buffer of samples, but the same quantity among the metrics
            points += self._gpm.read(self._nvml, self.gpu)
            active = [point.value for point in points if point.name == "gpu_graphics_active_share"]
            points += [self._point("gpu_utilization_share", value) for value in active]
        elif self._readings % _THROUGHPUT_EVERY == 0:
            points += self._gpm.read(self._nvml, self.gpu)
            points += self._traffic.read(self._nvml, self.gpu, {point.name for point in points})
        if memory is not None:
            points += self._processes(memory, identities)
        self._readings += 1
        if points:
            yield PointsTaken(at_ns, tuple(points))

    def close(self) -> None:
        self._gpm.close(self._nvml)

    def _ask(self, function: str, *what: Answer) -> Answer:
        return self._nvml.ask(self.gpu.handle, function, *what)

    def _point(self, name: str, value: float, identity: Identity | None = None) -> Point:
        return Point(name, float(value), identity, device=self.gpu.name)

    def _utilization(self) -> Iterator[PointsTaken]:
        """Yield the driver's samples, or one reading where it keeps none."""
        samples = self._samples.read(self._nvml, self.gpu)
        if samples is None:
            rates = self._ask("nvmlDeviceGetUtilizationRates")
            samples = [(self._clock.now_ns(), rates.gpu / 100)] if rates is not None and rates.gpu <= 100 else []
        for at_ns, share in samples:
            yield PointsTaken(at_ns, (self._point("gpu_utilization_share", share),))

    def _gauges(self) -> Iterator[Point]:
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        if memory is not None:
            yield self._point("gpu_memory_used_bytes", memory.used)
            if self._readings % _SLOW_EVERY == 0:
                yield self._point("gpu_memory_total_bytes", memory.total)
        if self.gpu.parent is not None:  # an instance has memory of its own; all the rest is its GPU's
            return
        answers = (self._ask(function) for function in _THROTTLE_REASONS)
        reasons = next((answer for answer in answers if answer is not None), None)
        if reasons is not None:
            yield self._point("gpu_throttle_reasons_mask", reasons & THROTTLE_MASK)
            yield self._point("gpu_throttled_share", 1.0 if reasons & THROTTLE_MASK else 0.0)
        for every, name, function, what, factor in _GAUGES:
            value = self._ask(function, *what) if self._readings % every == 0 else None
            if value is not None:
                yield self._point(name, value * factor)

    def _processes(self, memory: _Memory, identities: Mapping[int, Identity]) -> Iterator[Point]:
        ours = {pid: identities[pid] for pid in memory if pid in identities}
        shares = self._shares.read(self._nvml, self.gpu) if ours else {}
        for pid, identity in ours.items():
            used = memory[pid]
            if used is not None:
                yield self._point("gpu_process_memory_bytes", used, identity)
            if pid in shares:
                yield self._point("gpu_process_sm_share", shares[pid], identity)


class GpuSet:
    """All GPUs and MIG instances of an open NVML; ``readers`` has those that the run uses or has used, by name.

    Belongs to one thread. ``read_ns`` is when they were last read: the driver's buffers hold what came after that.
    """

    def __init__(self, nvml: Nvml, names: GpuNames, clock: Clock, *, since_ns: int, everything: bool) -> None:
        """List the devices, last read at ``since_ns``; with ``everything`` all are read, whoever uses them."""
        self.gpus = list_gpus(nvml, names)
        self.readers: dict[str, GpuReader] = {}
        self._nvml = nvml
        self._clock = clock
        self._everything = everything
        self._readings = 0
        self._looked_ns = since_ns
        self.read_ns = since_ns

    def read(self, users: GpuUsers) -> Iterator[DeviceSeen | PointsTaken]:
        """Read once; a ``DeviceSeen`` comes before the first points of a device."""
        memory: dict[Gpu, _Memory | None] = {}
        identities: Mapping[int, Identity] = {}
        if self._readings % _PROCESSES_EVERY == 0:
            # The processes of a GPU that is cut up are those of its instances.
            memory = {gpu: {} if gpu.is_mig_parent else memory_by_pid(self._nvml, gpu) for gpu in self.gpus}
            identities = users.identify({gpu: used or {} for gpu, used in memory.items()}, self.gpus)
            for gpu, used in memory.items():
                if gpu.name not in self.readers and self._is_used(gpu, used, identities, users):
                    yield from self._begin(gpu)
            self._looked_ns = self._clock.now_ns()
        for gpu in self.gpus:
            if gpu.name in self.readers and gpu.handle.lost is None:
                yield from self.readers[gpu.name].read(memory.get(gpu), identities)
        self._readings += 1
        self.read_ns = self._clock.now_ns()

    def lost(self) -> dict[str, str]:
        return {gpu.name: gpu.handle.lost for gpu in self.gpus if gpu.handle.lost is not None}

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()

    def _is_used(self, gpu: Gpu, memory: _Memory | None, identities: Mapping[int, Identity], users: GpuUsers) -> bool:
        if self._everything or any(pid in identities for pid in memory or ()):
            return True
        if gpu.is_mig_parent:
            return False  # it is as soon as one of its instances is
        return users.may_use(gpu, self.gpus, tells_pids=memory is not None)

    def _begin(self, gpu: Gpu) -> Iterator[DeviceSeen]:
        """Read a device from now on, and the GPU that it is part of, which has the power and the temperature."""
        if gpu.parent is not None and gpu.parent.name not in self.readers:
            yield from self._begin(gpu.parent)
        self.readers[gpu.name] = GpuReader(self._nvml, gpu, self._clock, self._looked_ns)
        memory = self._nvml.ask(gpu.handle, "nvmlDeviceGetMemoryInfo")
        yield DeviceSeen(
            at_ns=self._clock.now_ns(),
            name=gpu.name,
            index=gpu.index,
            model=gpu.model,
            uuid=gpu.uuid,
            memory_bytes=None if memory is None else int(memory.total),
        )
