"""How busy the GPUs of a run were, and which of them each process uses.

Utilization is NVML's: the share of a period of about a sixth of a second for which any kernel ran. It says nothing of
how full the GPU was.
"""

from __future__ import annotations

from profd.daemon.analyze.tracks import Track, mean_track, track_of
from profd.daemon.store.reader import RunReader

UTILIZATION = "gpu_utilization_share"
MEMORY_OF_PROCESS = "gpu_process_memory_bytes"
IDLE_BELOW = 0.05
"""A GPU is idle where less than this share of a period had a kernel running."""


class GpuTracks:
    """The utilization of the GPUs of each process, read once."""

    def __init__(self, reader: RunReader) -> None:
        """Read what the run has; devices without readings are left out."""
        self._reader = reader
        self._of_device = {
            series.device: track_of(reader.points(series.id))
            for series in reader.series.values()
            if series.name == UTILIZATION and series.device is not None and series.process is None
        }
        self._of_process: dict[int, Track] = {}

    @property
    def devices(self) -> frozenset[str]:
        """The devices that have readings."""
        return frozenset(device for device, track in self._of_device.items() if track.steps)

    @property
    def period_ns(self) -> int | None:
        """The longest of the usual distances of two readings; None where there are none."""
        return max((track.period_ns for track in self._of_device.values() if track.period_ns), default=None)

    def of_process(self, process: int) -> Track:
        """Return the mean utilization of the GPUs that a process uses; of all, where nobody knows which those are."""
        if process not in self._of_process:
            used = self.used_by(process)
            self._of_process[process] = mean_track([self._of_device[device] for device in sorted(used)])
        return self._of_process[process]

    def used_by(self, process: int) -> frozenset[str]:
        """Return the devices on which a process, or the one that it works for, has memory; else all devices."""
        for holder in self._with_ancestors(process):
            own = {
                series.device
                for series in self._reader.series.values()
                if series.name == MEMORY_OF_PROCESS and series.process == holder
            }
            if own & self.devices:
                return frozenset(own & self.devices)  # type: ignore[arg-type]  # None is no device
        return self.devices

    def _with_ancestors(self, process: int) -> list[int]:
        """Return a process and those that it descends from: a worker loads data for its parent's GPU."""
        found: list[int] = []
        at: int | None = process
        while at is not None and at in self._reader.processes and at not in found:
            found.append(at)
            at = self._reader.processes[at].parent
        return found
