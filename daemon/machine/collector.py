"""Counters of the processes of a run and of its machine, each kind in a lane of its own.

What a process or a machine lacks, or does not let us read, is a missing point, never an error; what hangs delays no
other lane.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from profd.daemon.clock import Clock
from profd.daemon.machine.cgroup import Limits
from profd.daemon.machine.machine import Cores, Machine, MachineAtLength, Space
from profd.daemon.machine.pollthread import Lane, Watched
from profd.daemon.machine.processes import MemoryMaps, QuickCounters, SlowCounters
from profd.daemon.store.records import Identity, Record

PATIENCE_S = 0.5


class HostCollector:
    """Has everything read that is due; ``put`` takes the records, in the threads that read."""

    def __init__(self, clock: Clock, put: Callable[[Record], object]) -> None:
        self._lanes = (
            Lane("counters of processes", (QuickCounters(clock),), clock, put),
            Lane("open files and I/O of processes", (SlowCounters(clock),), clock, put),
            Lane("memory maps", (MemoryMaps(clock),), clock, put),
            Lane("counters of the machine", (Machine(clock), MachineAtLength(clock), Cores(clock)), clock, put),
            Lane("control groups", (Limits(clock),), clock, put),
            Lane("room on file systems", (Space(),), clock, put),
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

        Read is what is due, or ``everything``. Returns when that was, or after ``patience_s``: what takes longer comes
        when it comes.
        """
        watched = Watched(tuple(identities), dict(python_threads))
        asked = [lane.ask(watched, everything=everything) for lane in self._lanes]
        readings = [future for future in asked if future is not None]
        if readings:
            await _all_done(readings, patience_s)

    def close(self) -> None:
        """Read no more. Threads that hang are left behind: they end with the process."""
        for lane in self._lanes:
            lane.close()


async def _all_done(readings: Sequence[Future[None]], patience_s: float) -> None:
    """Wait until all readings are done, or until patience ends.

    The event loop is woken once, by the last of them: to be woken by each costs more than most readings do.
    """
    loop = asyncio.get_running_loop()
    all_done: asyncio.Future[None] = loop.create_future()
    numbers = itertools.count(1)  # taken by several threads at a time, each number once

    def note(_: Future[None]) -> None:
        if next(numbers) == len(readings):
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_set_done, all_done)

    for reading in readings:
        reading.add_done_callback(note)
    await asyncio.wait([all_done], timeout=patience_s)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
