"""What profd itself costs, and the rate that keeps it within its budget."""

from __future__ import annotations

import os
import resource
from collections import deque

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock

LOWEST_RATE_HZ = 5
_SETTLE_READINGS = 12  # a multiple of a recording's length in seconds: starting one is the dearest part of it


class CostMeter:
    """CPU and memory of this process and of every py-spy that it started.

    Belongs to the thread that starts and reaps them, so that none ends between two looks of one reading.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = (clock.now_ns(), self._cpu_s())

    def cores(self) -> float:
        """Return the cores taken since the last call."""
        now_ns, cpu_s = self._clock.now_ns(), self._cpu_s()
        (before_ns, before_s), self._last = self._last, (now_ns, cpu_s)
        return max(cpu_s - before_s, 0.0) * SECOND_NS / max(now_ns - before_ns, 1)

    def rss_bytes(self) -> int:
        """Return the resident memory of this process and its living py-spy children."""
        pids = [os.getpid(), *_children()]
        return sum(processes.rss_bytes(pid) or 0 for pid in pids)

    @staticmethod
    def _cpu_s() -> float:
        ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        living = (processes.read_stat(pid) for pid in _children())
        ticks = sum(stat.cpu_ticks for stat in living if stat is not None)
        return sum(usage.ru_utime + usage.ru_stime for usage in ended) + ticks / processes.CLOCK_TICKS


def _children() -> list[int]:
    """Return this process's children; the main thread starts them all, and psutil would read the whole machine."""
    return processes.children(os.getpid(), of_all_threads=False)


class Governor:
    """Lowers the sampling rate while profd costs more than its budget, and raises it again when there is room.

    Each reading is about a second's cost; the mean of the last twelve decides, and after a change twelve more are
    waited for, so that one dear second moves nothing.
    """

    def __init__(self, rate_hz: int, budget_cores: float) -> None:
        self._highest_hz = rate_hz
        self._budget_cores = budget_cores
        self._readings: deque[float] = deque(maxlen=_SETTLE_READINGS)
        self.rate_hz = rate_hz

    def take(self, cores: float) -> bool:
        """Take in a second's cost; True where the rate changed."""
        self._readings.append(cores)
        if len(self._readings) < _SETTLE_READINGS:
            return False
        mean = sum(self._readings) / len(self._readings)
        wanted = self.rate_hz
        if mean > self._budget_cores:
            wanted = max(int(self.rate_hz * self._budget_cores / mean * 0.9), LOWEST_RATE_HZ)
        elif mean < 0.6 * self._budget_cores:
            wanted = self.rate_hz * 5 // 4
        wanted = min(wanted, self._highest_hz)
        if wanted == self.rate_hz:
            return False
        self.rate_hz = wanted
        self._readings.clear()
        return True
