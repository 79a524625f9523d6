"""Waits for something that another process is to do, for as long as that process lives and time is not over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.store.records import Identity
from profd.daemon.windows.failure import WindowFailed

_LOOK_INTERVAL_S = 0.1


class Patience:
    """Waiting, by one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def until(self, condition: Callable[[], bool], identity: Identity, patience_s: float) -> bool:
        """Wait for a condition; False where time is over before. Raises WindowFailed where the process ends before."""
        deadline_ns = self._clock.now_ns() + int(patience_s * SECOND_NS)
        while not condition():
            if not processes.is_running(*identity):
                raise WindowFailed(f"process {identity.pid} ended before its trace was written")
            if self._clock.now_ns() > deadline_ns:
                return False
            await asyncio.sleep(_LOOK_INTERVAL_S)
        return True
