"""Counters of the processes of a run and of its machine, each kind in a thread of its own.

What a process or a machine lacks, or does not let us read, is a missing point, never an error; what hangs delays no
other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

from profd.daemon.clock import Clock
from profd.daemon.machine.cgroup import Limits
from profd.daemon.machine.machine import Cores, Machine, MachineAtLength, Space
from profd.daemon.machine.pollthread import PollThread, Watched
from profd.daemon.machine.processes import MemoryMaps, QuickCounters, SlowCounters
from profd.daemon.store.records import Identity, Record

PATIENCE_S = 0.5


class HostCollector:
    """Reads what is due; ``put`` takes the records, in the threads that read."""

    def __init__(self, clock: Clock, put: Callable[[Record], object]) -> None:
        self._threads = (
            PollThread("counters of processes", (QuickCounters(clock),), clock, put),
            PollThread("open files and I/O of processes", (SlowCounters(clock),), clock, put),
            PollThread("memory maps", (MemoryMaps(clock),), clock, put),
            PollThread("counters of the machine", (Machine(clock), MachineAtLength(clock), Cores(clock)), clock, put),
            PollThread("control groups", (Limits(clock),), clock, put),
            PollThread("room on file systems", (Space(),), clock, put),
        )

    async def collect(
        self,
        identities: Iterable[Identity],
        python_threads: Mapping[Identity, frozenset[int]],
        *,
        everything: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Read these processes, the target first, these of their threads (OS thread ids), and the machine.

        Reads what is due, or ``everything``. Returns when that is done, or after ``patience_s``: the records of a
        reading that takes longer come later.
        """
        watched = Watched(tuple(identities), dict(python_threads))
        asked = [thread.ask(watched, everything=everything) for thread in self._threads]
        readings = [future for future in asked if future is not None]
        if not readings:
            return
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        numbers = itertools.count(1)  # taken by several threads at a time, each number once

        def note(_: Future[None]) -> None:
            # Only the last reading wakes the event loop: a wake-up by each costs more than most readings do.
            if next(numbers) == len(readings):
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(done.set)

        for reading in readings:
            reading.add_done_callback(note)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(done.wait(), patience_s)

    def close(self) -> None:
        """Read no more. Threads that hang are left behind: they end with the process."""
        for thread in self._threads:
            thread.close()
