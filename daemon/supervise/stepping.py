"""Follows the steps of the training processes of a tree: one reader of the loop counter for each of them.

Knows nothing of how a run begins or ends, nor of what becomes of the records.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable

from profd.daemon.clock import Clock
from profd.daemon.collect.steps import StepReader
from profd.daemon.store.records import EventHappened, Identity, Record
from profd.daemon.supervise import roles
from profd.daemon.supervise.tree import Member


class Stepping:
    """The readers of loop counters; ``put`` takes their records."""

    def __init__(self, executable: str, clock: Clock, put: Callable[[Record], object]) -> None:
        """Read with the py-spy at ``executable``."""
        self._executable = executable
        self._clock = clock
        self._put = put
        self._tasks: dict[Identity, asyncio.Task[None]] = {}

    def begin(self, member: Member) -> None:
        """Follow the steps of a member from now on, where it is one that trains and is not followed already."""
        if member.role != roles.MAIN or member.identity in self._tasks:
            return
        reader = StepReader(self._executable, member.identity, self._clock, self._put)
        task = asyncio.ensure_future(reader.run())
        self._tasks[member.identity] = task
        task.add_done_callback(lambda done: self._forget(member.identity, done))

    async def close(self) -> None:
        """Read no more."""
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, identity: Identity, task: asyncio.Task[None]) -> None:
        self._tasks.pop(identity, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error)
            self._put(EventHappened(self._clock.now_ns(), "error", f"steps are not followed: {error!r}", identity))
