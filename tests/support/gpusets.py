"""The GPUs of a fake driver as a run reads them, with its clock and the driver's moved together."""

from __future__ import annotations

from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.nvml import Nvml
from profd.daemon.gpu.processes import GpuUsers
from profd.daemon.gpu.reader import GpuSet
from profd.daemon.store.records import DeviceSeen, Identity, Point, PointsTaken
from support.clocks import StoppedClock
from support.fakedriver import FakeDriver
from support.gputraces import FakeTraces

MAIN = Identity(4242, 1000)


class GpuRoom:
    """A run of the process ``MAIN`` on the GPUs of a scenario; open it once the scenario has them."""

    def __init__(self, driver: FakeDriver, traces: FakeTraces | None = None, *, everything: bool = False) -> None:
        self.driver = driver
        self.clock = StoppedClock()
        self.start_ns = self.clock.at_ns
        self.nvml = Nvml(self.clock)
        assert self.nvml.open()
        self._names = GpuNames()
        self._everything = everything
        self.gpus = GpuSet(self.nvml, self._names, self.clock, since_ns=self.start_ns, everything=everything)
        self.users = GpuUsers(self.clock, traces or FakeTraces())
        self.users.take([MAIN])
        self.devices: list[DeviceSeen] = []
        self.taken: list[PointsTaken] = []

    def read(self, after_s: float = 0) -> list[Point]:
        """Let time go by, then read once; returns the points, without their times."""
        self.clock.advance(after_s)
        self.driver.set_now((self.clock.at_ns - self.start_ns) / 1e9)
        records = list(self.gpus.read(self.users))
        self.devices += [record for record in records if isinstance(record, DeviceSeen)]
        taken = [record for record in records if isinstance(record, PointsTaken)]
        self.taken += taken
        return [point for record in taken for point in record.points]

    def read_fully(self, after_s: float) -> list[Point]:
        """Let time go by, half-way with a reading that leaves out what is read every second time, then read all that.

        To be called after an odd number of readings.
        """
        self.read(after_s / 2)
        return self.read(after_s / 2)

    def reopen(self) -> None:
        """Let go of the driver and take it up again, as after a loss."""
        since_ns = self.gpus.read_ns
        self.gpus.close()
        self.nvml.close()
        assert self.nvml.open()
        self.gpus = GpuSet(self.nvml, self._names, self.clock, since_ns=since_ns, everything=self._everything)

    def series(self, name: str) -> list[tuple[float, float]]:
        """Return what was read of a series so far: seconds from the start, value."""
        return [
            ((record.at_ns - self.start_ns) / 1e9, point.value)
            for record in self.taken
            for point in record.points
            if point.name == name
        ]


def values(points: list[Point], device: str = "gpu0") -> dict[str, float]:
    """Return the values of a device by the names of their series."""
    return {point.name: point.value for point in points if point.device == device}
