"""Chains recordings of one process: gap-free, or in turns with other processes.

Gap-free, the next recording is started, the one before it ended once the next one samples, and both are cut at that
moment. In turns, one recording at a time is taken of many processes that are alike, so that their number costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Protocol

from profd.daemon import processes
from profd.daemon.clock import Clock
from profd.daemon.collect import assembly
from profd.daemon.collect.assembly import Span
from profd.daemon.collect.chrometrace import TraceDamaged
from profd.daemon.collect.pyspy import Recording, RecordingFailed
from profd.daemon.store.records import EventHappened, Identity, Record

# After py-spy says that it samples: three times the mean distance of two samples at 100 Hz, so that the recording that
# takes over has most probably seen something before the cut.
OVERLAP_S = 0.03
FIRST_LENGTH_S = 0.5
RETRY_FIRST_S = 0.05
RETRY_LAST_S = 2.0
REPORT_AFTER_FAILURES = 5


class Pace(Protocol):
    """How a process is to be sampled now; may change at any time and counts from the next recording on."""

    def rate_hz(self) -> int:
        """Return samples a second."""
        ...

    def length_s(self) -> float:
        """Return seconds that a recording lasts."""
        ...


class StackChain:
    """The recordings of one process, from now to its end.

    ``put`` takes the records. ``cost_ns`` is the CPU time of the recordings that have ended.
    """

    def __init__(
        self, executable: str, identity: Identity, pace: Pace, clock: Clock, put: Callable[[Record], object]
    ) -> None:
        self.identity = identity
        self.cost_ns = 0
        self._executable = executable
        self._pace = pace
        self._clock = clock
        self._put = put
        self._hurry = asyncio.Event()
        self._stopping = False
        self._has_recorded = False
        self._last_failure = ""

    def hurry(self) -> None:
        """End the recording in flight now, and let the next one take over: someone wants to see what it holds."""
        self._hurry.set()

    def stop(self) -> None:
        """End the chain with the recording in flight."""
        self._stopping = True
        self._hurry.set()

    async def run(self) -> None:
        """Record until the process is gone or the chain is stopped."""
        current, from_ns = await self._begin_patiently(), None
        while current is not None:
            await self._wait_until_due(current)
            if self._stopping or current.ended.done():
                current.stop()
                await self._finish(current, Span(from_ns))
                # Ended by itself: the process is gone, or has become another program with exec.
                current, from_ns = await self._begin_patiently(), None
                continue
            following = await self._begin()
            cut_ns = self._clock.now_ns()
            current.stop()
            await self._finish(current, Span(from_ns, cut_ns if following else None))
            current, from_ns = following, cut_ns
            if current is None:
                current, from_ns = await self._begin_patiently(), None

    async def run_in_turns(self, turn: asyncio.Semaphore) -> None:
        """Record whenever ``turn`` is free, until the process is gone or the chain is stopped."""
        while not self._stopping and processes.is_running(*self.identity):
            async with turn:
                recording = await self._begin()
                if recording is not None:
                    await self._wait_until_due(recording)
                    recording.stop()
                    await self._finish(recording, Span())
                    # As long as it was recorded, no one is: processes that are alike need not be sampled all the time.
                    await self._pause(recording.length_s)
            if recording is None:
                await self._pause(RETRY_LAST_S)

    async def _wait_until_due(self, current: Recording) -> None:
        """Wait until the recording is long enough, has ended by itself, or someone is in a hurry."""
        hurry: asyncio.Future[bool] = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({hurry, current.ended}, timeout=current.length_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not self._stopping:
            self._hurry.clear()

    async def _begin_patiently(self) -> Recording | None:
        """Start a recording, again and again while the process lives: an interpreter may not be ready yet."""
        pause_s, failures = RETRY_FIRST_S, 0
        while not self._stopping and processes.is_running(*self.identity):
            recording = await self._begin()
            if recording is not None:
                return recording
            failures += 1
            if failures == REPORT_AFTER_FAILURES:
                self._say("error", f"its stacks cannot be read: {self._last_failure}")
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, RETRY_LAST_S)
        return None

    async def _pause(self, pause_s: float) -> None:
        """Wait for a while, or until someone is in a hurry."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), pause_s)

    async def _begin(self) -> Recording | None:
        """Start a recording and return it once it has sampled for a moment; None where it would not."""
        length_s = self._pace.length_s() if self._has_recorded else FIRST_LENGTH_S
        try:
            recording = Recording(self._executable, self.identity.pid, self._pace.rate_hz(), length_s, self._clock)
        except RecordingFailed as error:
            self._last_failure = str(error)
            return None
        if await recording.sampling:
            self._has_recorded = True
            await asyncio.wait({recording.ended}, timeout=OVERLAP_S)
            return recording
        try:
            await recording.collect()
        except RecordingFailed as error:
            self._last_failure = str(error)
        self.cost_ns += recording.cpu_ns
        return None

    async def _finish(self, recording: Recording, keep: Span) -> None:
        """Collect a recording and hand over its record."""
        try:
            raw = await recording.collect()
            self._put(assembly.assemble(raw, self.identity, recording.rate_hz, keep, self._living_threads()))
        except (RecordingFailed, TraceDamaged) as error:
            self._say("loss", f"a recording was lost: {error}")
        finally:
            self.cost_ns += recording.cpu_ns

    def _living_threads(self) -> frozenset[int] | None:
        """Return the OS thread ids of the process; None where it is gone and there is nothing to tell apart."""
        try:
            return frozenset(map(int, os.listdir(f"/proc/{self.identity.pid}/task")))
        except OSError:
            return None

    def _say(self, kind: str, text: str) -> None:
        self._put(EventHappened(self._clock.now_ns(), kind, text, self.identity))
