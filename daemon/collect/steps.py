"""Follows the loop counter of one process from outside: searches for it, then reads it as seldom as is enough.

A reading costs 10 to 20 ms of CPU time, so their distance is bounded by their cost. While nothing is found they become
rarer and rarer. What is stored: `step_count` and `step_count_error` as series, and an event that names the counter.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.counter import CounterReading, CounterUnread, read_counter
from profd.daemon.collect.loops import Loop, find_loop
from profd.daemon.collect.odometer import Count, Odometer
from profd.daemon.collect.sightings import Variable, find_outer, sight
from profd.daemon.store.records import EventHappened, Identity, Point, PointsTaken, Record

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
FOUND_KIND = "counter"

HISTORY = 40
FIRST_S = 0.5
FIRST_READINGS = 30
SEARCH_S = 2.0
PATIENT_READINGS = 36
SLOWEST_SEARCH_S = 30.0
FOLLOW_S = 5.0
SEEK_S = 1.0
READINGS_A_CYCLE = 4
MISSES_BEFORE_SEARCH = 6
DOUBTS_TO_FORGET = 8
# Of one core: a search is over in a minute, following goes on for days.
SEARCH_COST_SHARE = 0.03
FOLLOW_COST_SHARE = 0.01
# Readings at equal distances would see a loop that is in step with them at one and the same place.
JITTER = 0.4


class StepCounter:
    """Turns readings into counts: finds the loop, follows it, looks for another one when it is gone.

    The counts go on from loop to loop. Knows nothing of time but what the readings say.
    """

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self._history: deque[CounterReading] = deque(maxlen=HISTORY)
        self._misses = 0
        self._searches = 0
        self._odometer = Odometer()
        self._outer: Variable | None = None
        self._before = Count(0, 0, 0.0)
        self._last: Count | None = None

    def take(self, reading: CounterReading) -> list[Count]:
        """Take in a reading; return the counts that are known now and were not before, in order of time."""
        self._history.append(reading)
        if self.loop is not None:
            self._misses = 0 if sight(self.loop.counter, reading) else self._misses + 1
        if self._is_searching():
            found = find_loop(self._history)
            if found is not None and (self.loop is None or found.counter != self.loop.counter):
                return self._take_up(found)
        self._searches = self._searches + 1 if self._is_searching() else 0
        counts = self._follow(reading) if self.loop else []
        if self._odometer.doubts >= DOUBTS_TO_FORGET:
            self.loop, self._odometer = None, Odometer()
        return counts

    def rest(self) -> list[Count]:
        """Return the counts that are held back for better ones, such as they are: there will be none."""
        return self._added(self._odometer.rest())

    def pause_s(self, cost_s: float) -> float:
        """Return how long to wait before the next reading, where one costs ``cost_s`` of CPU time."""
        if self._is_searching():
            return max(self._search_pause_s(), cost_s / SEARCH_COST_SHARE)
        # Often enough that the counter cannot start over and catch up unseen.
        wanted = [FOLLOW_S if not self._misses else SEEK_S, max(self._odometer.cycle_s() / READINGS_A_CYCLE, FIRST_S)]
        pause_s = max(min(wanted), cost_s / FOLLOW_COST_SHARE)
        due_s = self._odometer.due_s()
        return pause_s if due_s is None else min(pause_s, max(due_s, cost_s / SEARCH_COST_SHARE))

    def _is_searching(self) -> bool:
        return self.loop is None or self._misses >= MISSES_BEFORE_SEARCH

    def _search_pause_s(self) -> float:
        if self._searches < FIRST_READINGS:
            return FIRST_S
        return min(SEARCH_S * max(self._searches / PATIENT_READINGS, 1), SLOWEST_SEARCH_S)

    def _take_up(self, found: Loop) -> list[Count]:
        """Follow a loop from now on, and from as far back as it was seen."""
        left = self.rest()
        self.loop, self._misses, self._searches = found, 0, 0
        self._outer = None
        self._odometer = Odometer(found.stride, found.rate_per_s)
        if self._last is not None:
            first_value = found.sightings[0].value // found.stride
            self._before = self._last._replace(steps=self._last.steps - first_value)
        return [*left, *(count for seen in found.sightings for count in self._follow(self._history[seen.reading]))]

    def _follow(self, reading: CounterReading) -> list[Count]:
        assert self.loop is not None
        seen = sight(self.loop.counter, reading)
        if seen is None:
            return []
        if self._outer is None:
            self._look_outside(reading)
        outer = sight(self._outer, reading) if self._outer else None
        return self._added(self._odometer.take(seen, outer.value if outer else None))

    def _look_outside(self, reading: CounterReading) -> None:
        """Look for the loop around, which shows when the counter starts over for the first time."""
        assert self.loop is not None
        self._outer = find_outer(self.loop.counter, self._history)
        earlier = (past for past in reversed(self._history) if past.at_ns < reading.at_ns)
        last = next((past for past in earlier if sight(self.loop.counter, past)), None)
        if self._outer is not None and last is not None and (seen := sight(self._outer, last)) is not None:
            self._odometer.learn_outer(seen.value)

    def _added(self, counts: list[Count]) -> list[Count]:
        """Return counts of the loop of now on top of those of the loops before it."""
        before = self._before
        counts = [
            Count(count.at_ns, before.steps + count.steps, before.error_steps + count.error_steps) for count in counts
        ]
        self._last = counts[-1] if counts else self._last
        return counts


class StepReader:
    """Reads the loop counter of one process now and then, and hands over what is to be stored."""

    def __init__(self, executable: str, identity: Identity, clock: Clock, put: Callable[[Record], object]) -> None:
        self._executable = executable
        self._identity = identity
        self._clock = clock
        self._put = put
        self._counter = StepCounter()

    async def run(self) -> None:
        """Read until the process is gone."""
        try:
            while processes.is_running(*self._identity):
                cost_ns = await self._read()
                pause_s = self._counter.pause_s(cost_ns / SECOND_NS)
                await asyncio.sleep(pause_s * random.uniform(1 - JITTER, 1 + JITTER))
        finally:
            self._store(self._counter.rest())

    async def _read(self) -> int:
        """Take a reading and hand over what it says; return its cost."""
        try:
            reading = await asyncio.to_thread(read_counter, self._executable, self._identity.pid, self._clock)
        except CounterUnread as error:
            return error.cpu_ns
        before = self._counter.loop
        self._store(self._counter.take(reading))
        loop = self._counter.loop
        if loop is not None and loop is not before:
            self._put(EventHappened(self._clock.now_ns(), FOUND_KIND, str(loop), self._identity))
        return reading.cpu_ns

    def _store(self, counts: list[Count]) -> None:
        for count in counts:
            steps = Point(COUNT_SERIES, count.steps, self._identity)
            error = Point(ERROR_SERIES, count.error_steps, self._identity)
            self._put(PointsTaken(count.at_ns, (steps, error)))
