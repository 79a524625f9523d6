"""What profd itself costs: CPU time and memory of its own process and of every child: py-spys, and the analyst."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock


class Spending(NamedTuple):
    """CPU seconds that were spent, and the seconds in which they were."""

    cpu_s: float
    over_s: float

    @property
    def cores(self) -> float:
        """The mean number of cores."""
        return self.cpu_s / self.over_s if self.over_s else 0.0


class CostMeter:
    """CPU and memory of this process and of every process that it started.

    Belongs to the thread that starts and reaps them, so that none ends between two looks of one reading.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin with what this process has spent since it started."""
        self._clock = clock
        self._last_ns = clock.now_ns() - int(_own_age_s() * SECOND_NS)
        self._last_cpu_s = 0.0

    def take(self) -> Spending:
        """Return what was spent since the last call, or since this process started."""
        now_ns, cpu_s = self._clock.now_ns(), self._cpu_s()
        # A living child is counted in ticks, one that has ended exactly: the sum may go back by one of them.
        cpu_s = max(cpu_s, self._last_cpu_s)
        spending = Spending(cpu_s - self._last_cpu_s, (now_ns - self._last_ns) / SECOND_NS)
        self._last_ns, self._last_cpu_s = now_ns, cpu_s
        return spending

    def rss_bytes(self) -> int:
        """Return the resident memory of this process and its living children."""
        pids = [os.getpid(), *_children()]
        return sum(processes.rss_bytes(pid) or 0 for pid in pids)

    @staticmethod
    def _cpu_s() -> float:
        ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        living = (processes.read_stat(pid) for pid in _children())
        ticks = sum(stat.cpu_ticks for stat in living if stat is not None)
        return sum(usage.ru_utime + usage.ru_stime for usage in ended) + ticks / processes.CLOCK_TICKS


def _own_age_s() -> float:
    stat = processes.read_stat(os.getpid())
    return max(stat.age_s, 0.0) if stat else 0.0


def _children() -> list[int]:
    """Return this process's children; the main thread starts them all, and psutil would read the whole machine."""
    return processes.children(os.getpid(), of_all_threads=False)
