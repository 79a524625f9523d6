"""Everything that is read of one GPU, as points at their times. Knows neither threads nor who reads how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profd.daemon.clock import Clock
from profd.daemon.collect.gpu import gauges as gpugauges
from profd.daemon.collect.gpu.devices import Gpu
from profd.daemon.collect.gpu.gpm import Gpm
from profd.daemon.collect.gpu.nvml import Nvml
from profd.daemon.collect.gpu.processes import ProcessUtilization
from profd.daemon.collect.gpu.samples import UtilizationSamples
from profd.daemon.collect.gpu.traffic import Traffic
from profd.daemon.store.records import Identity, Point, PointsTaken

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
        points = list(gpugauges.quick_gauges(self._nvml, self.gpu))
        # An instance has its utilization from there.
        if self._readings % _THROUGHPUT_EVERY == 0 or self.gpu.parent is not None:
            points += self._throughput()
        if self._readings % _CALM_EVERY == 0:
            points += gpugauges.calm_gauges(self._nvml, self.gpu)
        if self._readings % _SLOW_EVERY == 0:
            points += gpugauges.slow_gauges(self._nvml, self.gpu)
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
            now = tuple(gpugauges.utilization_now(self._nvml, self.gpu))
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
