"""The GPUs of a fake driver as a run reads them, with its clock and the driver's moved together."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.gpu.devices import GpuNames
from profd.daemon.gpu.driverclock import POLL_NS
from profd.daemon.gpu.nvmlsource import NvmlSource
from profd.daemon.gpu.reader import GpuSet
from profd.daemon.gpu.users import GpuUsers
from profd.daemon.store.records import DeviceSeen, Identity, Point, PointsTaken
from support.clocks import StoppedClock
from support.gpusim import SimulatedDriver
from support.gputraces import FakeTraces

MAIN = Identity(4242, 1000)


class GpuRoom:
    """A run of the process ``MAIN`` on the GPUs of a scenario.

    Open it once the scenario has them.
    """

    def __init__(
        self,
        driver: SimulatedDriver,
        traces: FakeTraces | None = None,
        *,
        everything: bool = False,
        clock: StoppedClock | None = None,
    ) -> None:
        self.driver = driver
        self.clock = clock or StoppedClock()
        self.start_ns = self.clock.at_ns
        self.source = NvmlSource(self.clock, GpuNames())
        assert self.source.open()
        self._everything = everything
        self.gpus = GpuSet(self.source, self.clock, since_ns=self.start_ns, everything=everything)
        self.users = GpuUsers(self.clock, traces or FakeTraces())
        self.users.take([MAIN], self.gpus.gpus)
        self.devices: list[DeviceSeen] = []
        self.taken: list[PointsTaken] = []
        self.remarks: list[str] = []

    def read(self, after_s: float = 0) -> list[Point]:
        """Let time go by, with looks in between as the collector's thread makes them, then read
        once.

        Returns the points, without their times.
        """
        until_ns = self.clock.at_ns + round(after_s * SECOND_NS)
        while self.gpus.polls and self.clock.at_ns + POLL_NS < until_ns:
            self._go_to(self.clock.at_ns + POLL_NS)
            self.gpus.look()
        self._go_to(until_ns)
        records = list(self.gpus.read(self.users))
        self.devices += [record for record in records if isinstance(record, DeviceSeen)]
        taken = [record for record in records if isinstance(record, PointsTaken)]
        self.taken += taken
        self.remarks += self.gpus.remarks()
        return [point for record in taken for point in record.points]

    def go_on(self, seconds: int) -> None:
        """Read once a second."""
        for _ in range(seconds):
            self.read(1)

    def read_fully(self, after_s: float) -> list[Point]:
        """Let time go by, half-way with a reading that leaves out what is read every second time,
        then read all that.

        To be called after an odd number of readings.
        """
        self.read(after_s / 2)
        return self.read(after_s / 2)

    def reopen(self) -> None:
        """Let go of the driver and take it up again, as after a loss."""
        since_ns = self.gpus.read_ns
        self.source.close()
        assert self.source.open()
        self.gpus = GpuSet(self.source, self.clock, since_ns=since_ns, everything=self._everything)

    def _go_to(self, at_ns: int) -> None:
        self.clock.at_ns = at_ns
        self.driver.set_now((at_ns - self.start_ns) / SECOND_NS)

    def series(self, name: str) -> list[tuple[float, float]]:
        """Return what was read of a series so far: seconds from the start, value."""
        return [
            (
                ((record.at_ns if point.at_ns is None else point.at_ns) - self.start_ns) / 1e9,
                point.value,
            )
            for record in self.taken
            for point in record.points
            if point.name == name
        ]


def values(points: list[Point], device: str = "gpu0") -> dict[str, float]:
    """Return the values of a device by the names of their series."""
    return {point.name: point.value for point in points if point.device == device}
