"""Reads the GPUs that a run uses, as points at their times.

Metrics that a device lacks yield nothing; the reader remarks on it if it matters. The caller
decides how often: once a second for all that is due, and in between while a device's clock is
estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.answers import Why
from profd.daemon.gpu.devices import GpuDevice
from profd.daemon.gpu.nvmlsource import NvmlSource
from profd.daemon.gpu.questions import Questions
from profd.daemon.gpu.users import GpuUsers, memory_by_pid
from profd.daemon.gpu.utilization import UtilizationSamples
from profd.daemon.slowdowns import Slowdown
from profd.daemon.store.records import DeviceSeen, Identity, Point, PointsTaken

# Every how many readings. The driver makes each list of processes anew. Throughput is a mean since
# the last reading, so that reading it less often loses nothing.
_USUAL_EVERY = 2
_CALM_EVERY = 6
_SLOW_EVERY = 10
_GAUGES = (
    (_USUAL_EVERY, "gpu_sm_clock_hz"),
    (_CALM_EVERY, "gpu_temperature_celsius"),
    (_CALM_EVERY, "gpu_memory_clock_hz"),
    (_SLOW_EVERY, "gpu_power_limit_watts"),
    (_SLOW_EVERY, "gpu_ecc_corrected_count"),
    (_SLOW_EVERY, "gpu_ecc_uncorrected_count"),
)
"""Every how many readings, and the series."""
# An idle link is put into a lower generation, so that the highest reading shows its capacity.
_LINK = ("gpu_pcie_generation", "gpu_pcie_lanes", "gpu_pcie_generation_most", "gpu_pcie_lanes_most")
_PCIE = ("gpu_pcie_sent_bytes_per_s", "gpu_pcie_received_bytes_per_s")
_NVLINK = ("gpu_nvlink_sent_bytes_per_s", "gpu_nvlink_received_bytes_per_s")
_HELD_BACK = {
    "gpu_power_capped_share": "gpu_power_capped_s",
    "gpu_heat_slowed_share": "gpu_heat_slowed_s",
}
"""Series → the counter of seconds whose growth it is: a flag read once a second would miss some."""
ACTIVE = "gpu_graphics_active_share"

_Memory = Mapping[int, int | None]
"""The bytes that each process has on a device, by host PID."""


class GpuReader:
    """Reads one GPU, or MIG instance, that the run uses."""

    def __init__(self, questions: Questions, clock: Clock, since_ns: int) -> None:
        """Read a device from ``since_ns`` on, as far as the driver remembers."""
        self.gpu, self._questions = questions.gpu, questions
        self._source = questions.source
        self._clock = clock
        self._samples = UtilizationSamples(questions, clock, since_ns)
        self._counted: dict[str, tuple[int, float]] = {}
        # MIG has no utilization but that of GPM.
        self._has_samples = self.gpu.parent is None and not self.gpu.is_mig_parent
        self._readings = 0
        self._active_ns = clock.now_ns()
        self._amiss = ""

    @property
    def polls(self) -> bool:
        """Whether to ``look`` between two readings now."""
        return self._has_samples and self._samples.polls

    def look(self) -> None:
        self._samples.poll()

    def read(self, memory: _Memory | None, identities: Mapping[int, Identity]) -> Iterator[Point]:
        """Yield the new points; ``identities`` are the processes of the run by host PID.

        ``memory`` is None if the processes were not asked for this time.
        """
        if self._has_samples:
            for at_ns, share in self._samples.read():
                yield Point("gpu_utilization_share", share, None, None, self.gpu.name, at_ns)
        if self._readings % _USUAL_EVERY == 0:
            yield from self._gauges()
        if self._readings % _USUAL_EVERY == 0 or self.gpu.parent is not None:
            yield from self._activity()
        if memory is not None:
            yield from self._processes(memory, identities)
        self._readings += 1

    def remarks(self) -> Iterator[str]:
        """Yield why utilization is missing or coarse, each time that has changed."""
        words, before = self._utilization_words(), self._amiss
        self._amiss = words.partition(" (")[0]
        if self._amiss != before:
            yield f"{self.gpu.name}: {words or 'utilization is read as usual again'}"

    def _utilization_words(self) -> str:
        if self.gpu.is_mig_parent:
            return ""
        if self.gpu.parent is not None:
            error = self._questions.why_not(self._source.activity)
            if error is None or self._clock.now_ns() - self._active_ns <= 2 * SECOND_NS:
                return ""
            return f"no utilization, instances have that of GPM alone ({error})"
        missing, coarse = self._samples.why_missing(), self._samples.why_coarse()
        if missing is not None:
            return f"no utilization ({missing})"
        if coarse is not None:
            return f"utilization is the driver's current value, once a second ({coarse})"
        return ""

    def _ask_gauge(self, name: str) -> float | None:
        return self._questions.ask(self._source.gauge, name)

    def _points(
        self, name: str, value: float | None, identity: Identity | None = None
    ) -> Iterator[Point]:
        """Yield a value as a point; nothing if the device lacks it."""
        if value is not None:
            yield Point(name, float(value), identity, None, self.gpu.name)

    def _gauges(self) -> Iterator[Point]:
        memory = self._questions.ask(self._source.memory)
        if memory is not None:
            yield from self._points("gpu_memory_used_bytes", memory.used_bytes)
            if self._readings % _SLOW_EVERY == 0:
                yield from self._points("gpu_memory_total_bytes", memory.total_bytes)
        if self.gpu.parent is None:  # an instance has only memory of its own; the rest is its GPU's
            yield from self._gauges_of_gpu()

    def _gauges_of_gpu(self) -> Iterator[Point]:
        yield from self._points("gpu_power_watts", self._power())
        mask = self._ask_gauge("gpu_throttle_reasons_mask")
        reasons = None if mask is None else int(mask) & sum(Slowdown)
        yield from self._points("gpu_throttle_reasons_mask", reasons)
        for every, name in _GAUGES:
            if self._readings % every == 0:
                yield from self._points(name, self._ask_gauge(name))
        if self._readings % _SLOW_EVERY == 0 and not self._is_integrated():
            for name in _LINK:
                yield from self._points(name, self._ask_gauge(name))
        if self._readings % _CALM_EVERY == 0:
            for name, counter in _HELD_BACK.items():
                share = self._growth(self._source.gauge, counter)
                yield from self._points(name, None if share is None else min(share, 1.0))

    def _power(self) -> float | None:
        """Return the mean power since the last reading by the energy counter, else the driver's.

        Some devices measure power for a quarter of the time only, and give a mean over a second.
        """
        watts = self._growth(self._source.gauge, "gpu_energy_joules")
        return self._ask_gauge("gpu_power_watts") if watts is None else watts

    def _growth(self, question: Callable[[GpuDevice, str], float], counter: str) -> float | None:
        """Return by how much a counter grew a second since it was last read; None if unknown."""
        count, now_ns = self._questions.ask(question, counter), self._clock.now_ns()
        before = self._counted.pop(counter, None)
        if count is not None:
            self._counted[counter] = now_ns, count
        if count is None or before is None or count < before[1] or now_ns <= before[0]:
            return None
        return (count - before[1]) * SECOND_NS / (now_ns - before[0])

    def _activity(self) -> Iterator[Point]:
        """Yield the means since the last reading, of GPM and of what it lacks."""
        means = self._questions.ask(self._source.activity) or {}
        for name, value in means.items():
            yield from self._points(name, value)
        if not self._has_samples and ACTIVE in means:  # the same quantity
            self._active_ns = self._clock.now_ns()
            yield from self._points("gpu_utilization_share", means[ACTIVE])
        if self.gpu.parent is None and not self._is_integrated():
            yield from self._traffic(means.keys())

    def _traffic(self, known: Collection[str]) -> Iterator[Point]:
        """Yield the traffic over PCIe and NVLink that GPM did not tell."""
        for name in _PCIE:
            if name not in known:
                measured = self._questions.ask(self._source.pcie_bytes_per_s, name)
                yield from self._points(name, measured)
        for name in _NVLINK:
            if name not in known:
                yield from self._points(name, self._growth(self._source.nvlink_bytes, name))

    def _is_integrated(self) -> bool:
        """Say whether the device shares the machine's memory: then its PCIe link is made up."""
        error = self._questions.why_not(self._source.memory)
        return error is not None and error.why is Why.LACKING

    def _processes(self, memory: _Memory, identities: Mapping[int, Identity]) -> Iterator[Point]:
        for pid, used in memory.items():
            if pid in identities:
                yield from self._points("gpu_process_memory_bytes", used, identities[pid])


class GpuSet:
    """All GPUs and MIG instances of an open source.

    ``readers`` has those that the run uses or has used, by name. ``read_ns`` is when they were last
    read: the driver's buffers hold what came later. It belongs to one thread.
    """

    def __init__(
        self, source: NvmlSource, clock: Clock, *, since_ns: int, everything: bool
    ) -> None:
        """List the devices, last read at ``since_ns``.

        With ``everything`` all are read, whoever uses them.
        """
        self.gpus = source.gpus()
        self.readers: dict[str, GpuReader] = {}
        self._questions = {gpu.name: Questions(source, gpu, clock) for gpu in self.gpus}
        self._clock, self._everything = clock, everything
        self._readings = 0
        self._looked_ns = since_ns
        self.read_ns = since_ns

    @property
    def lost(self) -> dict[str, str]:
        """The devices that do not answer any more, by name, with the words of the driver."""
        return {name: one.lost for name, one in self._questions.items() if one.lost}

    @property
    def polls(self) -> bool:
        """Whether to ``look`` between two readings now."""
        return any(reader.polls for reader in self._answering())

    def look(self) -> None:
        """Look at devices whose clock is estimated."""
        for reader in self._answering():
            if reader.polls:
                reader.look()

    def read(self, users: GpuUsers) -> Iterator[DeviceSeen | PointsTaken]:
        """Read once: yield the devices that begin, then one record with the points of all."""
        memory: dict[GpuDevice, _Memory | None] = {}
        identities: Mapping[int, Identity] = {}
        if self._readings % _USUAL_EVERY == 0:
            memory = {gpu: self._memory_of(gpu) for gpu in self.gpus}
            identities = users.identify({gpu: used or {} for gpu, used in memory.items()})
            for gpu, used in memory.items():
                if gpu.name not in self.readers and self._is_used(gpu, used, identities, users):
                    yield from self._begin(gpu)
            self._looked_ns = self._clock.now_ns()
        at_ns, readers = self._clock.now_ns(), self._answering()
        points = [point for one in readers for point in one.read(memory.get(one.gpu), identities)]
        if points:
            yield PointsTaken(at_ns, tuple(points))
        self._readings += 1
        self.read_ns = self._clock.now_ns()

    def remarks(self) -> Iterator[str]:
        for reader in self._answering():
            yield from reader.remarks()

    def _answering(self) -> list[GpuReader]:
        used = (gpu.name for gpu in self.gpus if gpu.name in self.readers)
        return [self.readers[name] for name in used if not self._questions[name].lost]

    def _memory_of(self, gpu: GpuDevice) -> _Memory | None:
        if gpu.is_mig_parent:
            return {}  # its processes are those of its instances
        return memory_by_pid(self._questions[gpu.name])

    def _is_used(
        self,
        gpu: GpuDevice,
        memory: _Memory | None,
        identities: Mapping[int, Identity],
        users: GpuUsers,
    ) -> bool:
        if self._everything or any(pid in identities for pid in memory or ()):
            return True
        if gpu.is_mig_parent:
            return False  # it is as soon as one of its instances is
        return users.may_use(gpu, tells_pids=memory is not None)

    def _begin(self, gpu: GpuDevice) -> Iterator[DeviceSeen]:
        """Read a device from now on, and the GPU it is part of, which has power and temperature."""
        if gpu.parent is not None and gpu.parent.name not in self.readers:
            yield from self._begin(gpu.parent)
        questions = self._questions[gpu.name]
        self.readers[gpu.name] = GpuReader(questions, self._clock, self._looked_ns)
        memory = questions.ask(questions.source.memory)
        total_bytes = None if memory is None else memory.total_bytes
        yield DeviceSeen(
            self._clock.now_ns(), gpu.name, gpu.index, gpu.model, gpu.uuid, total_bytes
        )
