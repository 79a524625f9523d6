"""Follows the steps of the training processes of a tree: one reader of the loop counter for each of them.

Knows nothing of how a run begins or ends, nor of what becomes of the records.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable

from profd.daemon.clock import Clock
from profd.daemon.collect.steps.counter import IMPORTER, is_progress_bar
from profd.daemon.collect.steps.reader import StepReader
from profd.daemon.store.records import EventHappened, Identity, Record, RecordingTaken
from profd.daemon.supervise import roles
from profd.daemon.supervise.tree import Member

CLOSING_TIMEOUT_S = 2.0


class Stepping:
    """The readers of loop counters; ``put`` takes their records."""

    def __init__(self, executable: str, clock: Clock, put: Callable[[Record], object]) -> None:
        """Read with the py-spy at ``executable``."""
        self._executable = executable
        self._clock = clock
        self._put = put
        self._readers: dict[Identity, tuple[StepReader, asyncio.Task[None]]] = {}

    def begin(self, member: Member) -> None:
        """Follow the steps of a member from now on, where it is one that trains and is not followed already."""
        if member.role != roles.MAIN or member.identity in self._readers:
            return
        reader = StepReader(self._executable, member.identity, self._clock, self._put)
        task = asyncio.ensure_future(reader.run())
        self._readers[member.identity] = (reader, task)
        task.add_done_callback(lambda done: self._forget(member.identity, done))

    def take_recording(self, recording: RecordingTaken) -> None:
        """Learn from a recording: whether its process still imports modules, of progress bars, when a loop paused."""
        main = next((thread for thread in recording.threads if thread.is_main and thread.intervals), None)
        if main is not None and recording.identity in self._readers:
            stacks = [recording.stacks[interval.stack] for interval in main.intervals]
            reader, _ = self._readers[recording.identity]
            reader.take_samples(main.intervals, recording.stacks, recording.rate_hz)
            reader.see(
                is_importing=any(frame.file == IMPORTER for frame in stacks[-1]),
                has_bar=any(is_progress_bar(frame.function, frame.file) for stack in stacks for frame in stack),
            )

    async def close(self) -> None:
        """Take the last reading of each process that lives, and read no more; who takes long is broken off."""
        for reader, _ in self._readers.values():
            reader.close()
        tasks = {task for _, task in self._readers.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSING_TIMEOUT_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _forget(self, identity: Identity, task: asyncio.Task[None]) -> None:
        self._readers.pop(identity, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error)
            self._put(EventHappened(self._clock.now_ns(), "error", f"steps are not followed: {error!r}", identity))
