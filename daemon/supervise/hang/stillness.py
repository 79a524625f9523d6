"""How long a run has done nothing, by the records on their way to the run file. Pure: reads nothing itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.records import Identity, Point, PointsTaken
from profd.daemon.units import percent

# Heartbeats and timers go on in a run that hangs: so much CPU time is none.
QUIET_CORES = 0.03
QUIET_CORES_OF_A_PROCESS = 0.005
_SPARE_CORE_S = 0.05
_BUSY_CORE_S, _BUSY_WITHIN_S = 0.5, 60.0
_HISTORY = 1200
# As they stand in the names of series.
_CPU, _STEPS, _GPU = "cpu_cores", "step_count", "gpu_utilization_share"
_GPU_MOVES = 0.02


class Stillness:
    """What the processes of a run took lately, and when they last came a step further."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.step_ns: int | None = None
        """When the last step was seen; None where steps are not counted."""
        self.step_s = 0.0
        """Seconds a step took when it was last seen."""
        self._readings: deque[tuple[int, float, int]] = deque(maxlen=_HISTORY)
        self._steps: dict[Identity | None, tuple[int, float]] = {}
        self._gpus: dict[str, deque[tuple[int, float]]] = {}

    def take(self, record: PointsTaken) -> None:
        """Take in points; all but those of CPU, steps and GPUs are passed over."""
        cores, processes = 0.0, 0
        for point in record.points:
            if point.name == _CPU and point.os_tid is None:
                cores, processes = cores + point.value, processes + 1
            elif point.name == _STEPS:
                self._take_steps(record.at_ns, point)
            elif point.name == _GPU and point.device is not None:
                self._gpus.setdefault(point.device, deque(maxlen=_HISTORY)).append((record.at_ns, point.value))
        if processes:
            self._readings.append((record.at_ns, cores, processes))

    def quiet_s(self) -> float:
        """Return for how many seconds up to the last reading hardly any CPU time was used, on average.

        None of them lies before the last step that was seen: a training that mostly waits steps all the same.
        """
        quiet_s = length_s = spent_core_s = 0.0
        for step_s, cores, processes in self._backwards():
            length_s += step_s
            spent_core_s += cores * step_s
            if spent_core_s <= _allowed_cores(processes) * length_s + _SPARE_CORE_S:
                quiet_s = length_s
        if self.step_ns is None or not self._readings:
            return quiet_s
        return min(quiet_s, max(self._readings[-1][0] - self.step_ns, 0) / SECOND_NS)

    def is_busy_since(self, at_ns: int) -> bool:
        """Say whether more CPU time was used after a time, in the last minute of it, than a run that hangs takes."""
        excess_core_s, length_s = 0.0, 0.0
        for step_s, cores, processes in self._backwards(at_ns):
            length_s += step_s
            excess_core_s += (cores - _allowed_cores(processes)) * step_s
            if excess_core_s > _BUSY_CORE_S:
                return True
            if length_s > _BUSY_WITHIN_S:
                break
        return False

    def forget(self) -> None:
        """Begin anew to look how long nothing was done."""
        self._readings.clear()

    def _backwards(self, from_ns: int = 0) -> Iterator[tuple[float, float, int]]:
        """Yield readings after a time, the last one first: seconds since the one before, cores, and of how many."""
        readings = list(self._readings)
        for (before_ns, _, _), (at_ns, cores, processes) in zip(readings[-2::-1], readings[:0:-1], strict=True):
            if at_ns <= from_ns:
                return
            yield (at_ns - before_ns) / SECOND_NS, cores, processes

    def has_stepped_since(self, at_ns: int) -> bool:
        """Say whether a step was made after a time."""
        return self.step_ns is not None and self.step_ns > at_ns

    def gpu_moves_since(self, at_ns: int) -> bool:
        """Say whether a GPU was busy now more, now less: at 0 % or 100 % throughout it may hang with the rest."""
        return any(max(values) - min(values) > _GPU_MOVES for values in self._gpu_since(at_ns).values() if values)

    def gpu_facts(self, at_ns: int) -> list[str]:
        """Return how busy each GPU was since a time, in words."""
        return [
            f"{name} at a constant {percent(values[-1])}"
            for name, values in sorted(self._gpu_since(at_ns).items())
            if values
        ]

    def _gpu_since(self, at_ns: int) -> dict[str, list[float]]:
        return {name: [value for when, value in points if when >= at_ns] for name, points in self._gpus.items()}

    def _take_steps(self, at_ns: int, point: Point) -> None:
        before = self._steps.get(point.identity)
        if before is None or point.value > before[1]:
            if before is not None:
                self.step_s = (at_ns - before[0]) / SECOND_NS / (point.value - before[1])
                self.step_ns, self.last_step = at_ns, int(point.value)
            self._steps[point.identity] = (at_ns, point.value)


def _allowed_cores(processes: int) -> float:
    """Return what so many processes may take while nothing goes on."""
    return max(QUIET_CORES, QUIET_CORES_OF_A_PROCESS * processes)
