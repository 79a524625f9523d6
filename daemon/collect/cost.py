"""What profd itself costs, and the rate that keeps it within its budget."""

from __future__ import annotations

import os
import resource
from collections import deque

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock

LOWEST_RATE_HZ = 5
_SETTLE_READINGS = 12  # a multiple of a recording's length in seconds: its cost comes all at its end


class CostMeter:
    """CPU and memory of this process and of every py-spy that it started and saw end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = (clock.now_ns(), self._cpu_s())

    def cores(self) -> float:
        """Return the cores taken since the last call. A recording counts as a whole when it has ended."""
        now_ns, cpu_s = self._clock.now_ns(), self._cpu_s()
        (before_ns, before_s), self._last = self._last, (now_ns, cpu_s)
        return (cpu_s - before_s) * SECOND_NS / max(now_ns - before_ns, 1)

    def rss_bytes(self) -> int:
        """Return the resident memory of this process and its living py-spy children."""
        # py-spy is started by the main thread; to ask psutil would be to read every process of the machine.
        pids = [os.getpid(), *processes.children(os.getpid(), of_all_threads=False)]
        return sum(processes.rss_bytes(pid) or 0 for pid in pids)

    @staticmethod
    def _cpu_s() -> float:
        usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)


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
