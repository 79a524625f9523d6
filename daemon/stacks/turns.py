"""Give turns, one at a time, to the processes that share one recording."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

Due = Callable[[], float]
"""Returns how much there is to see of a process, in any unit that all share."""


class Turns:
    """Turns for those that wait for one: the next has whoever has most to show by then."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[asyncio.Future[None], Due] = {}

    @contextlib.asynccontextmanager
    async def taken(self, due: Due) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the context ends."""
        if self._is_taken:
            await self._called(due)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _called(self, due: Due) -> None:
        called = asyncio.get_running_loop().create_future()
        self._waiting[called] = due
        try:
            await called
        except asyncio.CancelledError:
            if self._waiting.pop(called, None) is None:  # it was called, and does not come
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Call the next one, who has the turn from now on: whoever just had it has to wait."""
        self._is_taken = bool(self._waiting)
        if self._waiting:
            called = max(self._waiting, key=lambda one: self._waiting[one]())
            del self._waiting[called]
            if not called.done():  # else it was given up just now, and passes the turn on
                called.set_result(None)
