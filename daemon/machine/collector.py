"""Counters of the processes of a run and of its machine.

Each kind that may hang has a thread of its own.

What a process or a machine lacks, or does not let us read, is a missing point, never an error; what
hangs delays no other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.machine.cgroup import Limits
from profd.daemon.machine.counters import MemoryMaps, QuickCounters, SlowCounters
from profd.daemon.machine.machine import Cores, Machine, MachineAtLength, Space, Watched
from profd.daemon.store.records import EventHappened, Identity, Point, PointsTaken, Put


class CounterSource(Protocol):
    """Something that is read every ``interval_s``."""

    interval_s: float

    def read(self, watched: Watched) -> Iterable[Point | EventHappened]:
        """Yield the readings of now; what cannot be read is left out."""
        ...


class PollThread:
    """Reads some sources in a thread of their own; ``put`` takes their records, in that thread.

    A thread that hangs is left behind when the session ends. A source that fails is no longer read,
    and an event says so.
    """

    def __init__(
        self,
        name: str,
        sources: Sequence[CounterSource],
        clock: Clock,
        put: Put,
    ) -> None:
        """Start the thread; ``name`` names in words what it reads."""
        self.name, self._sources, self._clock, self._put = name, list(sources), clock, put
        self._due_ns: dict[CounterSource, int] = {}
        self._asked: tuple[Future[None], int] | None = None
        self._stuck_reported = False
        self._requests: queue.SimpleQueue[tuple[Watched, Future[None]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"profd-{name}", daemon=True).start()

    def ask(self, watched: Watched, *, everything: bool = False) -> Future[None] | None:
        """Have the sources read that are due, or ``everything``; the future is done afterwards.

        None if nothing is due, or the thread hangs.
        """
        now_ns = self._clock.now_ns()
        if self._asked is not None and not self._asked[0].done():
            if now_ns - self._asked[1] >= 10 * SECOND_NS and not self._stuck_reported:
                self._stuck_reported = True
                self._report(
                    EventKind.NOTE, f"{self.name} cannot be read: the kernel does not answer"
                )
            return None
        if everything:
            self._due_ns.clear()
        if not any(self._is_due(source, now_ns) for source in self._sources):
            return None
        self._stuck_reported = False
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # a caller that stops waiting does not stop the reading
        self._asked = (done, now_ns)
        self._requests.put((watched, done))
        return done

    def close(self) -> None:
        self._requests.put(None)

    def _run(self) -> None:
        for watched, done in iter(self._requests.get, None):
            for source in list(self._sources):
                now_ns = self._clock.now_ns()
                if not self._is_due(source, now_ns):
                    continue
                try:
                    found = list(source.read(watched))
                except (
                    ValueError,
                    LookupError,
                    OSError,
                ) as error:  # a kernel that writes its files in another way
                    self._sources.remove(source)
                    self._report(
                        EventKind.ERROR, f"{type(source).__name__} is no longer read: {error!r}"
                    )
                    continue
                # A caller that asks once a second does so a moment early or late.
                self._due_ns[source] = now_ns + int((source.interval_s - 0.25) * SECOND_NS)
                points = tuple(point for point in found if isinstance(point, Point))
                if points:
                    self._put(PointsTaken(self._clock.now_ns(), points))
                for event in found:
                    if isinstance(event, EventHappened):
                        self._put(event)
            done.set_result(None)

    def _is_due(self, source: CounterSource, now_ns: int) -> bool:
        return now_ns >= self._due_ns.get(source, now_ns)

    def _report(self, kind: EventKind, text: str) -> None:
        self._put(EventHappened(self._clock.now_ns(), kind, text))


class HostCollector:
    """Reads all that is due; ``put`` takes the records, in the threads that read."""

    def __init__(self, clock: Clock, put: Put) -> None:
        counters = (
            QuickCounters(clock),
            Machine(clock),
            MachineAtLength(clock),
            Cores(clock),
            Limits(clock),
        )
        self._threads = (
            PollThread("counters", counters, clock, put),
            PollThread("open files and I/O of processes", (SlowCounters(clock),), clock, put),
            PollThread("memory maps", (MemoryMaps(clock),), clock, put),
            PollThread("room on file systems", (Space(),), clock, put),
        )

    async def collect(
        self,
        identities: Iterable[Identity],
        python_threads: Mapping[Identity, frozenset[int]],
        leaders: Mapping[Identity, int] = {},
        *,
        everything: bool = False,
        patience_s: float = 0.5,
    ) -> None:
        """Read these processes, these of their threads, and the machine.

        The target comes first. Threads are given as OS thread ids; ``leaders`` are those that lead
        in place of the main ones. Reads all that is due, or
        ``everything``. Returns when that is done, or after ``patience_s``: the records of a reading
        that takes longer come later.
        """
        watched = Watched(tuple(identities), dict(python_threads), leaders)
        asked = [thread.ask(watched, everything=everything) for thread in self._threads]
        readings = [future for future in asked if future is not None]
        if not readings:
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        numbers = itertools.count(1)  # taken by several threads at a time, each number once

        def note(_: Future[None]) -> None:
            # Only the last reading wakes the event loop: a wake-up by each costs more than most
            # readings do.
            if next(numbers) == len(readings):
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(done.set_result, None)

        for reading in readings:
            reading.add_done_callback(note)
        await asyncio.wait({done}, timeout=patience_s)

    def close(self) -> None:
        """Read no more. Threads that hang are left behind: they end with the process."""
        for thread in self._threads:
            thread.close()
