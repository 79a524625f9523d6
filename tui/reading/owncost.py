"""What the dashboard itself takes of a core: its CPU time, apart from what the run file says of the profiler."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LATELY_S = 10.0
SOONEST_S = 2.0


class OwnCost:
    """The CPU time of the dashboard over the last seconds; reading a run that is opened counts, its imports do not."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, spent_s: Callable[[], float] = time.process_time
    ) -> None:
        self._now_s = now_s
        self._spent_s = spent_s
        self._readings = deque([(now_s(), spent_s())])

    def cores(self) -> float | None:
        """Return how much of a core was used lately; None before that can be told."""
        self._readings.append((self._now_s(), self._spent_s()))
        (begun_s, before_s), (now_s, after_s) = self._readings[0], self._readings[-1]
        # One reading older than what counts stays: the time between the others is part of it.
        while len(self._readings) > 2 and self._readings[1][0] <= now_s - LATELY_S:
            self._readings.popleft()
            begun_s, before_s = self._readings[0]
        return (after_s - before_s) / (now_s - begun_s) if now_s - begun_s >= SOONEST_S else None
