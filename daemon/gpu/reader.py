"""Reads the GPUs that a run uses, as points at their times.

Metrics that a device lacks yield nothing; the reader remarks on it if it matters. The caller
decides how often: once a second for all that is due, and in between for what a device asks to be
looked at more often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from profd.daemon import units
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.gpu.answers import Why
from profd.daemon.gpu.devices import GpuDevice
from profd.daemon.gpu.driverclock import POLL_NS
from profd.daemon.gpu.nvmlsource import NvmlSource
from profd.daemon.gpu.questions import Questions
from profd.daemon.gpu.traffic import LOOK_NS, Traffic
from profd.daemon.gpu.users import GpuUsers, Named, memory_by_pid
from profd.daemon.gpu.utilization import ProcessShares, UtilizationSamples
from profd.daemon.store.records import DeviceSeen, Identity, Point, PointsTaken

# Every how many readings. The driver makes each list of processes anew. Throughput is a mean since
# the last reading, so that reading it less often loses nothing.
_PROCESSES_EVERY = 2
_GAUGES_EVERY = 2
_CALM_EVERY = 6
_SLOW_EVERY = 10
_GAUGES = (
    (_GAUGES_EVERY, "gpu_sm_clock_hz"),
    (_CALM_EVERY, "gpu_temperature_celsius"),
    (_CALM_EVERY, "gpu_memory_clock_hz"),
    (_SLOW_EVERY, "gpu_power_limit_watts"),
    (_SLOW_EVERY, "gpu_ecc_corrected_count"),
    (_SLOW_EVERY, "gpu_ecc_uncorrected_count"),
)
"""Every how many readings, and the series."""
# An idle link is put into a lower generation, so that the highest reading shows its capacity.
_LINK = ("gpu_pcie_generation", "gpu_pcie_lanes", "gpu_pcie_generation_most", "gpu_pcie_lanes_most")
_HELD_BACK = {
    "gpu_power_capped_share": "gpu_power_capped_s",
    "gpu_heat_slowed_share": "gpu_heat_slowed_s",
}
"""Series → the counter of seconds whose growth it is: a flag read once a second would miss some."""
# Reasons for a clock below what the device could reach under its load: power cap, hardware
# slowdown, software and hardware thermal slowdown, power brake, board limit, reliability. Idleness
# and clocks that someone chose are none.
THROTTLE_MASK = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400
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
        self._shares = ProcessShares(questions)
        self._traffic = Traffic(questions, clock)
        self._counted: dict[str, tuple[int, float]] = {}
        self._looked_ns = 0
        self._has_counters = True
        # MIG has no utilization but that of GPM.
        self._has_samples = self.gpu.parent is None and not self.gpu.is_mig_parent
        self._readings = 0
        self._active_ns = clock.now_ns()
        self._told_behind_ns = 0
        self._amiss = ""

    def look(self, now_ns: int) -> int | None:
        """Take what cannot wait for the next reading; return after how long to look again.

        None if nothing is to be looked at between two readings.
        """
        counts = self._has_samples and not self._has_activity()
        if counts and now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._has_counters = self._traffic.look()
        if self._has_samples and self._samples.polls:
            self._samples.poll()
            return POLL_NS
        return LOOK_NS if counts and self._has_counters else None

    def read(
        self, memory: _Memory | None, users: GpuUsers, identities: Mapping[int, Identity]
    ) -> Iterator[Point]:
        """Yield the new points; ``identities`` are the processes of the run by host PID.

        ``memory`` is None if the processes were not asked for this time.
        """
        if self._has_samples:
            for at_ns, share in self._samples.read():
                yield Point("gpu_utilization_share", share, None, None, self.gpu.name, at_ns)
        if self._readings % _GAUGES_EVERY == 0:
            yield from self._gauges()
        if self._readings % _GAUGES_EVERY == 0 or self.gpu.parent is not None:
            yield from self._activity()
        if memory is not None:
            yield from self._processes(memory, users, identities)
        self._readings += 1

    def remarks(self) -> Iterator[str]:
        """Yield what a user has to know of this device's readings, each time it has changed."""
        offset_ns = self._samples.driver_clock.offset_ns
        behind_ns = (
            self._told_behind_ns if offset_ns is None else offset_ns + self._clock.wall_jump_ns()
        )
        if abs(behind_ns - self._told_behind_ns) > SECOND_NS // 2:
            self._told_behind_ns = behind_ns
            distance = units.duration(abs(behind_ns) / SECOND_NS)
            where = "behind" if behind_ns > 0 else "ahead of"
            yield (
                f"{self.gpu.name}: the driver's clock is {distance} {where} the wall clock; its "
                "samples are moved"
            )
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
            yield from self._driver_clock()

    def _gauges_of_gpu(self) -> Iterator[Point]:
        yield from self._points("gpu_power_watts", self._power())
        mask = self._ask_gauge("gpu_throttle_reasons_mask")
        reasons = None if mask is None else int(mask) & THROTTLE_MASK
        yield from self._points("gpu_throttle_reasons_mask", reasons)
        for every, name in _GAUGES:
            if self._readings % every == 0:
                yield from self._points(name, self._ask_gauge(name))
        if self._readings % _SLOW_EVERY == 0 and not self._is_integrated():
            for name in _LINK:
                yield from self._points(name, self._ask_gauge(name))
        if self._readings % _CALM_EVERY == 0:
            for name, counter in _HELD_BACK.items():
                share = self._growth(counter)
                yield from self._points(name, None if share is None else min(share, 1.0))

    def _driver_clock(self) -> Iterator[Point]:
        """Yield what is known of the driver's clock, once a minute."""
        clock = self._samples.driver_clock
        if self._readings % 60 == _CALM_EVERY and clock.offset_ns is not None:
            yield from self._points("gpu_clock_offset_s", clock.offset_ns / SECOND_NS)
            if clock.period_ns is not None:
                yield from self._points("gpu_sampling_period_s", clock.period_ns / SECOND_NS)

    def _power(self) -> float | None:
        """Return the mean power since the last reading by the energy counter, else the driver's.

        Some devices measure power for a quarter of the time only, and give a mean over a second.
        """
        watts = self._growth("gpu_energy_joules")
        return self._ask_gauge("gpu_power_watts") if watts is None else watts

    def _growth(self, counter: str) -> float | None:
        """Return by how much a counter grew a second since it was last read; None if unknown."""
        count, now_ns = self._ask_gauge(counter), self._clock.now_ns()
        before = self._counted.pop(counter, None)
        if count is not None:
            self._counted[counter] = now_ns, count
        if count is None or before is None or count < before[1] or now_ns <= before[0]:
            return None
        return (count - before[1]) * SECOND_NS / (now_ns - before[0])

    def _has_activity(self) -> bool:
        """Say whether GPM tells the traffic, as far as is known."""
        is_refused = self._questions.why_not(self._source.activity) is not None
        return bool(self._questions.ask(self._source.has_activity)) and not is_refused

    def _activity(self) -> Iterator[Point]:
        """Yield the means since the last reading, of GPM and of what it lacks."""
        means = self._questions.ask(self._source.activity) or {}
        for name, value in means.items():
            yield from self._points(name, value)
        if not self._has_samples and ACTIVE in means:  # the same quantity
            self._active_ns = self._clock.now_ns()
            yield from self._points("gpu_utilization_share", means[ACTIVE])
        if self.gpu.parent is None and not self._is_integrated():
            yield from self._traffic.read(means.keys())

    def _is_integrated(self) -> bool:
        """Say whether the device shares the machine's memory: then its PCIe link is made up."""
        error = self._questions.why_not(self._source.memory)
        return error is not None and error.why is Why.LACKING

    def _processes(
        self, memory: _Memory, users: GpuUsers, identities: Mapping[int, Identity]
    ) -> Iterator[Point]:
        if self._readings % _SLOW_EVERY == 0 and not self.gpu.is_mig_parent:
            yield from self._points("gpu_processes_known_share", users.knows(identities))
        ours = {pid: identities[pid] for pid in memory if pid in identities}
        shares = self._shares.read() if ours else {}
        named = users.identify({self.gpu: shares.keys()}, Named.IN_SAMPLES) if shares else {}
        share_of = {identity: shares[pid] for pid, identity in named.items()}
        for pid, identity in ours.items():
            yield from self._points("gpu_process_memory_bytes", memory[pid], identity)
            yield from self._points("gpu_process_sm_share", share_of.get(identity), identity)


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
        self.pause_ns: int | None = None
        """After how long to ``look``; None if nothing needs it before the next reading."""
        self._readings = 0
        self._looked_ns = since_ns
        self.read_ns = since_ns

    @property
    def lost(self) -> dict[str, str]:
        """The devices that do not answer any more, by name, with the words of the driver."""
        return {name: one.lost for name, one in self._questions.items() if one.lost}

    def look(self) -> None:
        """Look at what cannot wait, and keep it for the next reading."""
        now_ns = self._clock.now_ns()
        pauses = [reader.look(now_ns) for reader in self._answering()]
        self.pause_ns = min((pause_ns for pause_ns in pauses if pause_ns is not None), default=None)

    def read(self, users: GpuUsers) -> Iterator[DeviceSeen | PointsTaken]:
        """Read once: yield the devices that begin, then one record with the points of all."""
        memory: dict[GpuDevice, _Memory | None] = {}
        identities: Mapping[int, Identity] = {}
        if self._readings % _PROCESSES_EVERY == 0:
            # The processes of a GPU that is cut up are those of its instances.
            memory = {
                gpu: {} if gpu.is_mig_parent else memory_by_pid(self._questions[gpu.name])
                for gpu in self.gpus
            }
            identities = users.identify({gpu: used or {} for gpu, used in memory.items()})
            for gpu, used in memory.items():
                if gpu.name not in self.readers and self._is_used(gpu, used, identities, users):
                    yield from self._begin(gpu)
            self._looked_ns = self._clock.now_ns()
        self.look()
        at_ns, readers = self._clock.now_ns(), self._answering()
        points = [
            point for one in readers for point in one.read(memory.get(one.gpu), users, identities)
        ]
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
