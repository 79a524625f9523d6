"""Take readings about once a second beside the stacks: counters, profd's cost, the wall clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.machine.collector import HostCollector
from profd.daemon.session.budget import CostMeter, Governor
from profd.daemon.store.records import EventHappened, Identity, Point, PointsTaken, Put
from profd.daemon.tree.tree import Member

TRIM_EVERY_NS = 30 * SECOND_NS
"""How often free memory is given back.

Reading recordings leaves one megabyte of it, the start leaves two.
"""


@dataclass(eq=False)
class Readings:
    """Passes readings to ``put`` and costs to the governor of the sampling rate.

    It also calls ``put`` in the threads that read.
    """

    clock: Clock
    governor: Governor
    put: Put

    def __post_init__(self) -> None:
        self._counters = HostCollector(self.clock, self.put)
        self._cost = CostMeter(self.clock)
        self._noted_hz = self.governor.highest_hz
        self._has_noted_excess = False
        self._wall_jump_ns = 0
        self._slept_ns = 0
        self._trim_at_ns = self.clock.now_ns() + TRIM_EVERY_NS

    async def take(
        self,
        members: Mapping[Identity, Member],
        python_threads: Mapping[Identity, frozenset[int]],
        *,
        for_window: bool = False,
    ) -> None:
        """Read once; ``for_window`` says that a window is being taken."""
        leaders = {one: member.leader.os_tid for one, member in members.items() if member.leader}
        await self._counters.collect(members, python_threads, leaders)
        spending = self._cost.take()
        own = (
            Point("profd_cpu_cores", spending.cores),
            Point("profd_rss_bytes", self._cost.rss_bytes()),
        )
        self.put(PointsTaken(self.clock.now_ns(), own))
        self.governor.take(spending, for_window=for_window)
        before_hz, rate_hz = self._noted_hz, self.governor.rate_hz
        is_full_again = rate_hz == self.governor.highest_hz > before_hz
        if is_full_again or abs(rate_hz - before_hz) > before_hz / 6:  # smaller changes come and go
            self._noted_hz = rate_hz
            why = "to stay within its budget" if rate_hz < before_hz else "as there is room again"
            self._say(
                EventKind.RATE, f"profd samples at {rate_hz} Hz instead of {before_hz} Hz, {why}"
            )
        if self.governor.is_beyond_budget and not self._has_noted_excess:
            self._say(
                EventKind.NOTE,
                f"profd costs more than its budget even at {rate_hz} Hz, which is its lowest rate",
            )
            self._has_noted_excess = True
        if self.clock.now_ns() >= self._trim_at_ns:
            self._trim_at_ns = self.clock.now_ns() + TRIM_EVERY_NS
            processes.trim_heap()
        slept_ns = self.clock.suspended_ns()
        if slept_ns - self._slept_ns > SECOND_NS:
            slept_s = (slept_ns - self._slept_ns) / SECOND_NS
            self._say(
                EventKind.WALL_JUMP,
                f"the machine was suspended for {slept_s:.3f} s, which the run's times leave out",
            )
            self._slept_ns = slept_ns
        jump_ns = self.clock.wall_jump_ns() - slept_ns
        if abs(jump_ns - self._wall_jump_ns) > SECOND_NS:
            self._say(
                EventKind.WALL_JUMP,
                f"the wall clock jumped by {(jump_ns - self._wall_jump_ns) / SECOND_NS:+.3f} s",
            )
            self._wall_jump_ns = jump_ns

    async def close(self) -> None:
        """Read a last time, even though the target is gone.

        Control groups count what the kernel killed.
        """
        await self._counters.collect((), {}, everything=True)
        self._counters.close()

    def aim_at_rate(self, rate_hz: int, why: str) -> None:
        """Change the highest rate, and note the rate that follows."""
        before_hz = self.governor.rate_hz
        self.governor.aim(rate_hz)
        self._noted_hz = self.governor.rate_hz
        self._say(
            EventKind.RATE,
            f"profd samples at {self._noted_hz} Hz instead of {before_hz} Hz, as {why}",
        )

    def _say(self, kind: EventKind, text: str) -> None:
        self.put(EventHappened(self.clock.now_ns(), kind, text))
