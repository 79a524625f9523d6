"""How busy the GPUs of a run were, and which of them each process uses.

Utilization is NVML's: the share of a period of about a fifth of a second in which any kernel or
copy ran. It does not say how full the GPU was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

from profd.daemon.analyze.series import total_of
from profd.daemon.clock import SECOND_NS
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store import stepfunction
from profd.daemon.store.reader import RunReader
from profd.daemon.store.stepfunction import (
    UTILIZATION,
    Aggregate,
    StepFunction,
    mean_function,
    sum_aggregates,
)
from profd.daemon.timerange import EVER, TimeRange


class GpuTracks:
    """The utilization of the GPUs of each process over a range of time, read once."""

    def __init__(
        self,
        reader: RunReader,
        time: TimeRange = EVER,
        longest_ns: int = RECORDING.longest_ns,
        name: str = UTILIZATION,
    ) -> None:
        """Read a series for the intervals that start in a range of time, by default in the run.

        ``longest_ns`` is how long after the range they may end. ``name`` is the series.
        """
        self._reader, self._name = reader, name
        self._time = time.longer(longest_ns)
        self._of_device: dict[str, StepFunction] = {}
        self._of_process: dict[int, StepFunction] = {}

    @property
    def period_ns(self) -> int | None:
        """The longest of the usual distances of two readings, lately; None without readings."""
        end_ns = self._time.to_ns if self._time.has_end else self._reader.info.end_ns
        last = TimeRange(end_ns - 120 * SECOND_NS, end_ns).within(self._time)
        lately = GpuTracks(self._reader, last, name=self._name)
        periods = (lately._of(device).period_ns for device in self.series)
        return max((period_ns for period_ns in periods if period_ns), default=None)

    def of_process(self, process: int) -> StepFunction:
        """Return the mean utilization of a process's GPUs, or of all if its own are unknown."""
        if process not in self._of_process:
            self._of_process[process] = mean_function(
                [self._of(device) for device in sorted(self.used_by(process))]
            )
        return self._of_process[process]

    def used_by(self, process: int) -> frozenset[str]:
        """Return the devices on which a process, or its parent, has memory; else all devices."""
        parents = {row.id: row.parent for row in self._reader.processes.values()}
        return stepfunction.devices_used(process, parents, self._held, frozenset(self.series))

    @cached_property
    def series(self) -> dict[str, int]:
        rows = self._reader.list_series(self._name, processes={None})
        return {row.device: row.id for row in rows if row.device is not None}

    @cached_property
    def _held(self) -> Mapping[int, set[str]]:
        held: defaultdict[int, set[str]] = defaultdict(set)
        for row in self._reader.list_series(stepfunction.MEMORY_OF_PROCESS):
            if row.process is not None and row.device is not None:
                held[row.process].add(row.device)
        return held

    def _of(self, device: str) -> StepFunction:
        if device not in self._of_device:
            self._of_device[device] = self._reader.steps(self.series[device], self._time)
        return self._of_device[device]


def total_utilization(reader: RunReader, processes: Iterable[int], time: TimeRange) -> Aggregate:
    """Return how busy the GPUs of some processes were in a range of time, over the known time.

    The idle share of GPUs is 1 - its mean, for steps and readings of any length. Each output asks
    here.
    """
    tracks = GpuTracks(reader, time)
    devices = {device for process in processes for device in tracks.used_by(process)}
    return sum_aggregates(total_of(reader, tracks.series[one], time) for one in sorted(devices))
