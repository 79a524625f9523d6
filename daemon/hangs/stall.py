"""Detect a run that makes no progress: it does nothing, keeps one stack, or spins.

A wait that spins uses a core as a computation does, and two looks at a loop may well see the same
line of it. If each of some thousand samples shows the same stack, it is one long call, or a loop of
one line. A very long computation looks like that too. So it takes much longer until this counts as
a hang, and only if steps are counted and at most one core per process is busy.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.hangs.look import Look, LookPair
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.records import (
    STEP_COUNT,
    EventHappened,
    Frame,
    Identity,
    PointsTaken,
    RecordingTaken,
)
from profd.daemon.store.stepfunction import THREAD_CPU, UTILIZATION
from profd.daemon.units import percent

_KERNELS, _TRAFFIC = "gpu_graphics_active_share", "gpu_dram_bandwidth_share"
"""When kernels ran, not copies, and how busy the memory was: of GPM, from Hopper on."""
_HISTORY = 1200
"""Most readings that are kept. If there are more, every second one goes: steps may take hours."""


class RunActivity:
    """The recent CPU time of a run's processes, and when they last made a step."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        self.step_ns: int | None = None
        """When the last step was seen; None if steps are not counted."""
        self.step_s = 0.0
        """Seconds that a step took when one was last seen."""
        self._readings: list[tuple[int, float, int]] = []
        """By time, the CPU seconds of all processes since the first reading, and their number."""
        self._steps: dict[Identity | None, tuple[int, float]] = {}
        self.left: set[Identity | None] = set()
        """The processes that have left the loop of their steps."""
        self._gpus: dict[str, dict[str, deque[tuple[int, float]]]] = {
            name: {} for name in (UTILIZATION, _KERNELS, _TRAFFIC, "gpu_power_watts")
        }

    def take(self, record: PointsTaken | EventHappened) -> None:
        if isinstance(record, EventHappened) and record.kind is EventKind.LOOP_LEFT:
            self.left.add(record.identity)
            return
        if isinstance(record, EventHappened):  # steps are no longer counted
            self._steps.pop(record.identity, None)
            self.step_ns = None
            self.step_s = 0.0
            return
        cores, processes = 0.0, 0
        for point in record.points:
            if point.name == THREAD_CPU and point.os_tid is None:
                cores, processes = cores + point.value, processes + 1
            elif point.name == STEP_COUNT:
                seen = record.at_ns, point.value
                before_ns, before = self._steps.setdefault(point.identity, seen)
                if point.value > before:
                    self.step_s = (record.at_ns - before_ns) / SECOND_NS / (point.value - before)
                    self.step_ns, self.last_step = record.at_ns, int(point.value)
                    self._steps[point.identity] = seen
                    self.left.discard(point.identity)
            elif point.device is not None and point.name in self._gpus:
                at_ns = record.at_ns if point.at_ns is None else point.at_ns
                points = self._gpus[point.name].setdefault(point.device, deque(maxlen=_HISTORY))
                points.append((at_ns, point.value))
        if processes:
            before_ns, spent_s, _ = self._readings[-1] if self._readings else (record.at_ns, 0.0, 0)
            spent_s += cores * (record.at_ns - before_ns) / SECOND_NS
            self._readings.append((record.at_ns, spent_s, processes))
        if len(self._readings) > _HISTORY:
            self._readings = [*self._readings[:-1:2], self._readings[-1]]

    def quiet_s(self) -> float:
        """Return for how many seconds up to now hardly any CPU time was used.

        Only the time since the last step counts.
        """
        quiet_s = length_s = all_spent_s = 0.0
        for step_s, spent_s, processes in self._backwards():
            length_s += step_s
            all_spent_s += spent_s
            if all_spent_s <= _allowed_cores(processes) * length_s + 0.05:
                quiet_s = length_s
        if self.step_ns is None or not self._readings:
            return quiet_s
        return min(quiet_s, max(self._readings[-1][0] - self.step_ns, 0) / SECOND_NS)

    def is_busy_since(self, at_ns: int) -> bool:
        """Return whether more CPU time was used since a time than a hanging run takes.

        Only the last minute of that time counts.
        """
        excess_core_s = length_s = 0.0
        for step_s, spent_s, processes in self._backwards(at_ns):
            length_s += step_s
            excess_core_s += spent_s - _allowed_cores(processes) * step_s
            if excess_core_s > 0.5:
                return True
            if length_s > 60:
                break
        return False

    def goes_on_since(self, at_ns: int) -> bool:
        """Return whether a step was made since a time, or more CPU time used than in a hang."""
        return self.has_stepped_since(at_ns) or self.is_busy_since(at_ns)

    def forget(self) -> None:
        """Forget the CPU time, so that a run counts as quiet from now on at the earliest."""
        self._readings.clear()

    def _backwards(self, from_ns: int = 0) -> Iterator[tuple[float, float, int]]:
        """Yield readings after a time, the last one first.

        A reading has the seconds since the one before, the CPU seconds that were spent in them, and
        the number of processes.
        """
        backwards = reversed(self._readings)
        for (at_ns, after_s, processes), (before_ns, before_s, _) in itertools.pairwise(backwards):
            if at_ns <= from_ns:
                return
            yield (at_ns - before_ns) / SECOND_NS, after_s - before_s, processes

    def has_stepped_since(self, at_ns: int) -> bool:
        return self.step_ns is not None and self.step_ns > at_ns

    def gpu_moves_since(self, at_ns: int) -> bool:
        """Return whether a GPU's use went up and down.

        A GPU that is at 0 % or 100 % throughout may hang with the rest.
        """
        return any(
            max(values) - min(values) > 0.02 for values in self._gpu_since(at_ns).values() if values
        )

    def gpus_are_full_since(self, at_ns: int) -> bool:
        """Return whether all GPUs were busy throughout.

        They are if they wait for one another.
        """
        found = list(self._gpu_since(at_ns).values())
        return bool(found) and all(values and min(values) >= 0.9 for values in found)

    def spinning_gpus(self, at_ns: int) -> list[str]:
        """Return the GPUs in which a kernel ran throughout that moved no data of their memory.

        Empty if there was another GPU, or one that does not tell.
        """
        kernels, traffic = (self._gpu_since(at_ns, name) for name in (_KERNELS, _TRAFFIC))
        names = sorted(self._gpu_since(at_ns))
        # A hundredth of the bandwidth of an H100's memory is 33 GB/s.
        are_still = all(
            min(kernels.get(one) or [0.0]) >= 0.9 and max(traffic.get(one) or [1.0]) < 0.01
            for one in names
        )
        return names if are_still and self.gpus_are_full_since(at_ns) else []

    def gpu_facts(self, at_ns: int) -> list[str]:
        gpus = sorted(self._gpu_since(at_ns).items())
        return [f"{name} at a constant {percent(values[-1])}" for name, values in gpus if values]

    def gpu_readings(self, at_ns: int) -> dict[str, dict[str, list[float]]]:
        """Return by series and device what was read of GPUs since a time."""
        return {series: self._gpu_since(at_ns, series) for series in self._gpus}

    def _gpu_since(self, at_ns: int, series: str = UTILIZATION) -> dict[str, list[float]]:
        return {
            name: [value for when, value in points if when >= at_ns]
            for name, points in self._gpus[series].items()
        }


def _allowed_cores(processes: int) -> float:
    """Return the cores that a number of processes may use while nothing goes on.

    Heartbeats and timers use some.
    """
    return max(0.03, 0.005 * processes)


class _Place(NamedTuple):
    """The stack in which a main thread was last seen, and since when."""

    stack: tuple[Frame, ...]
    since_ns: int
    until_ns: int


class StackAges:
    """For how long the main threads of a run have had their stacks."""

    def __init__(self, clock: Clock, activity: RunActivity) -> None:
        self._clock = clock
        self._activity = activity
        self._places: dict[Identity, _Place] = {}

    def take(self, recording: RecordingTaken) -> None:
        led = [one for thread in recording.threads if thread.is_main for one in thread.intervals]
        place = self._places.get(recording.identity)
        for interval in sorted(led, key=lambda one: one.start_ns):
            stack = recording.stacks[interval.stack]
            since_ns = place.since_ns if place and place.stack == stack else interval.start_ns
            place = _Place(stack, since_ns, interval.start_ns + interval.duration_ns)
        if place is not None:
            self._places[recording.identity] = place

    def keep(self, training: Collection[Identity]) -> None:
        """Forget all processes but these, which train now."""
        self._places = {
            identity: place for identity, place in self._places.items() if identity in training
        }

    def _since_ns(self) -> int | None:
        """Return since when all of them have had their current stacks.

        Returns None if that is not known of each.
        """
        # The age of the last recording: the time from one hand-over to the next, and the time to
        # read it.
        if any(
            place.until_ns < self._clock.now_ns() - 2 * RECORDING.whole_s * SECOND_NS
            for place in self._places.values()
        ):
            return None
        return max((place.since_ns for place in self._places.values()), default=None)

    def stood_s(self) -> float:
        """Return for how long all that train have kept their stacks without a step.

        Returns 0 if that is unknown.
        """
        since_ns = self._since_ns()
        # what a GPU did in the first moments may be a mean with what it did before
        if since_ns is None or self._activity.gpu_moves_since(since_ns + 2 * SECOND_NS):
            return 0.0
        return (self._clock.now_ns() - max(since_ns, self._activity.step_ns or 0)) / SECOND_NS

    def has_moved_since(self, at_ns: int) -> bool:
        """Return whether a process that trains has another stack since a time."""
        since_ns = self._since_ns()
        return since_ns is not None and since_ns > at_ns


class TwoLooks:
    """Looks twice at a run that makes no progress, half of a timeout apart.

    ``look`` looks at the processes that train, or at all. The first look is at those that train.
    """

    def __init__(self, clock: Clock, look: Callable[[bool], Awaitable[Look | None]]) -> None:
        self._clock = clock
        self._look = look
        self._first: Look | None = None
        self._took_s = 0.0
        """Seconds that the first look took."""

    async def check(self, stalled_s: float, timeout_s: float) -> LookPair | None:
        """Return two looks at a run that has been stalled for the timeout; else None.

        The second one is the first of the next two.
        """
        # To report within the requested time, allow for a reading's age and two looks, and where
        # looks take long for native stacks: a second look takes twice as long, those six times.
        due_s = timeout_s - min(0.2 * timeout_s, 3.0 + 8 * self._took_s)
        half_s = timeout_s / 2
        apart_ns = int((due_s - half_s) * SECOND_NS)
        if stalled_s < half_s:
            self._first = None
        elif self._first is None:
            began_ns = self._clock.now_ns()
            self._first = await self._look(True)
            self._took_s = (self._clock.now_ns() - began_ns) / SECOND_NS
        elif stalled_s >= due_s and self._clock.now_ns() - self._first.at_ns >= apart_ns:
            first, self._first = self._first, await self._look(False)
            return LookPair(first, self._first) if self._first else None
        return None
