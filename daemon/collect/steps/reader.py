"""Follows the loop counter of one process from outside: searches for it, then reads it as seldom as is enough.

A reading costs 10 to 20 ms of CPU time; what they may cost together is said in ``cadence``. While nothing is found they
become rarer and rarer. What is stored: `step_count` and `step_count_error` as series, and an event that names the
counter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.steps.cadence import Cadence, Wish
from profd.daemon.collect.steps.counter import CounterReading, CounterUnread, read_counter
from profd.daemon.collect.steps.declared import Declared
from profd.daemon.collect.steps.loops import Loop, find_loop
from profd.daemon.collect.steps.odometer import Count, Odometer
from profd.daemon.collect.steps.pauses import Pauses, StepsBy
from profd.daemon.collect.steps.sightings import Variable, find_outer, is_anything_rising, sight
from profd.daemon.store.records import EventHappened, Frame, Identity, Interval, Point, PointsTaken, Record
from profd.daemon.userfiles import files_of

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
FOUND_KIND = "counter"

HISTORY = 40
# Close together first, to see a short cycle from within, then further and further apart, to see a slow loop move.
FIRST_S = 0.2
FURTHER = 1.2
# Where samples show a progress bar now and then, readings do too: sooner or later, so it pays to go on.
FURTHER_TO_BAR = 1.1
SLOWEST_SEARCH_S = 30.0
# While modules are imported, or nothing counts at all.
VAIN_S = 0.7
FURTHER_IN_VAIN = 1.5
FOLLOW_S = 5.0
SEEK_S = 1.0
MISSES_BEFORE_SEARCH = 6
DOUBTS_TO_FORGET = 8
YOUNG_S = 10.0
LONGEST_IMPORT_S = 60.0
BAR_S = 60.0
# At the end, where the counter is on the stack now and then only: seen two times of five, it is missed once in fifty.
LAST_TRIES = 8


class StepCounter:
    """Turns readings into counts: finds the loop, follows it, looks for another one when it is gone.

    The counts go on from loop to loop. Knows nothing of time but what the readings say.
    """

    def __init__(self) -> None:
        self.loop: Loop | None = None
        self._lost: Loop | None = None
        self._history: deque[CounterReading] = deque(maxlen=HISTORY)
        self._misses = 0
        self._searches = 0
        self._vain = 0
        self._is_bar_expected = False
        self._odometer = Odometer()
        self._pauses = Pauses()
        self._outer: Variable | None = None
        self._before = Count(0, 0, 0.0)
        self._last: Count | None = None

    def take(self, reading: CounterReading) -> list[Count]:
        """Take in a reading; return the counts that are known now and were not before, in order of time."""
        if not self._is_telling(reading):
            return []
        self._history.append(reading)
        if self.loop is not None:
            self._misses = 0 if sight(self.loop.counter, reading) else self._misses + 1
        if self._is_searching():
            found = find_loop(self._history)
            if found is not None and (self.loop is None or found.counter != self.loop.counter):
                return self._take_up(found)
        # What may be a counter is followed closely, to see enough of it before it starts over.
        self._searches = self._searches + (not is_anything_rising(self._history)) if self._is_searching() else 0
        counts = self._follow(reading) if self.loop else []
        if self._odometer.doubts >= DOUBTS_TO_FORGET:
            self._forget()
        return counts

    def expect_bar(self, is_expected: bool) -> None:
        """Take in whether samples show a progress bar: then a stack without integers is no sign that nothing counts."""
        if is_expected and self._vain:
            self._vain = self._searches = 0
        self._is_bar_expected = is_expected

    def take_samples(
        self, intervals: Sequence[Interval], stacks: Sequence[Sequence[Frame]], rate_hz: int, steps_by: StepsBy
    ) -> None:
        """Take in what the main thread did, as samples show: where it was not in the loop, that paused."""
        self._pauses.take(intervals, stacks, rate_hz, steps_by)

    @property
    def is_in_sight(self) -> bool:
        """Say whether the loop was seen in the last reading."""
        return self.loop is not None and not self._misses

    def rest(self) -> list[Count]:
        """Return the counts that are held back for better ones, such as they are: there will be none."""
        return self._added(self._odometer.rest())

    def wish(self) -> Wish:
        """Return when the next reading would tell most, whatever it costs."""
        if self._vain and self._is_searching():
            return Wish(min(VAIN_S * FURTHER_IN_VAIN ** (self._vain - 1), SLOWEST_SEARCH_S), is_urgent=True)
        if self._is_searching():
            further = FURTHER_TO_BAR if self._is_bar_expected else FURTHER
            return Wish(min(FIRST_S * further**self._searches, SLOWEST_SEARCH_S), is_urgent=True)
        due_s = self._odometer.due_s()
        if due_s is not None:
            return Wish(due_s, is_urgent=True, every_s=self._odometer.cycle_s())
        if self._odometer.doubts:
            return Wish(SEEK_S, is_urgent=True)
        return Wish(SEEK_S if self._misses else FOLLOW_S, is_urgent=False)

    def _is_telling(self, reading: CounterReading) -> bool:
        """Say whether a search is served by a reading: not while modules are imported, or where nothing can count."""
        if reading.frames and not reading.is_importing:
            self._searches = 0 if self._vain else self._searches
            self._vain = 0
            return True
        self._misses += self.loop is not None
        if (self._history or self._is_bar_expected) and not reading.is_importing:
            self._searches += 1  # what may count is on the stack now and then, as a generator is: look for it again
        else:
            self._vain += 1
        return False

    def _is_searching(self) -> bool:
        return self.loop is None or self._misses >= MISSES_BEFORE_SEARCH

    def _take_up(self, found: Loop) -> list[Count]:
        """Follow a loop from now on, and from as far back as it was seen."""
        left = self.rest()
        self.loop, self._misses, self._searches = found, 0, 0
        self._outer = None
        self._pauses = Pauses(found.counter)
        self._odometer = Odometer(found.stride, found.first_rate_per_s, self._pauses)
        counts = [count for seen in found.sightings for count in self._count(self._history[seen.reading])]
        self._before = self._joined(found, self._last, counts) if self._last is not None else self._before
        return [*left, *self._added(counts)]

    def _joined(self, found: Loop, last: Count, counts: Sequence[Count]) -> Count:
        """Return what is to be added to the counts of a loop, so that they go on where those of the one before ended.

        It may have been seen before that one was seen last: then its own counts tell how far it was at that time.
        """
        earlier = [count for count in counts if count.at_ns <= last.at_ns]
        if earlier:
            since_s = (last.at_ns - earlier[-1].at_ns) / SECOND_NS
            made = earlier[-1].steps + found.rate_per_s * since_s
            made = min([made, *(count.steps for count in counts if count.at_ns > last.at_ns)])
            return Count(0, last.steps - round(made), last.error_steps + 1)
        first = found.sightings[0]
        unseen = self._unseen(found, last, first.at_ns)
        return Count(0, last.steps + unseen - first.value // found.stride, last.error_steps + unseen)

    def _forget(self) -> None:
        """Give up a loop that makes no sense any more, and search in what was seen since."""
        self._lost, self.loop, self._odometer = self.loop, None, Odometer()
        seen_ns = self._last.at_ns if self._last else 0
        self._history = deque((past for past in self._history if past.at_ns > seen_ns), maxlen=HISTORY)

    def _unseen(self, found: Loop, last: Count, at_ns: int) -> int:
        """Return how many steps were made unseen where a loop is found that was lost: it may have gone on, or not."""
        if self._lost is None or self._lost.counter != found.counter:
            return 0
        return round(found.rate_per_s * (at_ns - last.at_ns) / SECOND_NS)

    def _follow(self, reading: CounterReading) -> list[Count]:
        return self._added(self._count(reading))

    def _count(self, reading: CounterReading) -> list[Count]:
        """Return the counts of the loop of now alone."""
        assert self.loop is not None
        seen = sight(self.loop.counter, reading)
        if seen is None:
            return []
        if self._outer is None:
            self._look_outside(reading)
        outer = sight(self._outer, reading) if self._outer else None
        return self._odometer.take(seen, outer.value if outer else None)

    def _look_outside(self, reading: CounterReading) -> None:
        """Look for the loop around, which shows when the counter starts over for the first time."""
        assert self.loop is not None
        self._outer = find_outer(self.loop.counter, self._history, self.loop.rate_per_s)
        if self._outer is not None:
            seen = ((past.at_ns, sight(self._outer, past)) for past in self._history)
            self._odometer.learn_outer({at_ns: found.value for at_ns, found in seen if found is not None})

    def _added(self, counts: list[Count]) -> list[Count]:
        """Return counts of the loop of now on top of those of the loops before it, and after these."""
        before, counted_ns = self._before, self._last.at_ns if self._last is not None else -1
        counts = [
            Count(count.at_ns, before.steps + count.steps, before.error_steps + count.error_steps)
            for count in counts
            if count.at_ns > counted_ns
        ]
        self._last = counts[-1] if counts else self._last
        return counts


class StepReader:
    """Reads the loop counter of one process now and then, and hands over what is to be stored."""

    def __init__(
        self,
        executable: str,
        identity: Identity,
        clock: Clock,
        put: Callable[[Record], object],
        declared: Declared | None = None,
    ) -> None:
        """Read with the py-spy at ``executable``; ``declared`` is what the source files of the process say."""
        self._executable = executable
        self._identity = identity
        self._clock = clock
        self._put = put
        self._counter = StepCounter()
        self._cadence = Cadence()
        self._declared = declared or Declared(files_of(identity.pid))
        self._closing = asyncio.Event()
        self._bar_until_ns = 0
        # Not asked of py-spy: a stack with a hundred frames of imports is the dearest to read.
        self._has_imported = asyncio.Event()
        if processes.uptime_s() - identity.start_ticks / processes.CLOCK_TICKS > YOUNG_S:
            self._has_imported.set()

    async def run(self) -> None:
        """Read until the process is gone, or once more when the reader is closed."""
        await self._wait_for_imports()
        try:
            last_tries = 0
            while processes.is_running(*self._identity) and not self._has_nothing_to_end():
                last_tries += self._closing.is_set()
                await self._read()
                if last_tries and (self._counter.is_in_sight or last_tries == LAST_TRIES):
                    break
                await self._pause()
        finally:
            self.end()

    def end(self) -> None:
        """Hand over what was held back for readings that will not come."""
        self._store(self._counter.rest())

    def close(self) -> None:
        """Take the last reading, so that the count ends where the recording ends, and come to an end."""
        self._closing.set()

    def see(self, *, is_importing: bool, has_bar: bool = False) -> None:
        """Take in what samples show: whether modules are imported, before which nothing is read, and a progress bar."""
        if not is_importing:
            self._has_imported.set()
        if has_bar:
            self._bar_until_ns = self._clock.now_ns() + round(BAR_S * SECOND_NS)

    def take_samples(self, intervals: Sequence[Interval], stacks: Sequence[Sequence[Frame]], rate_hz: int) -> None:
        """Take in what the main thread did; intervals are in order of time, and index the stacks."""
        self._counter.take_samples(intervals, stacks, rate_hz, self._steps_by)

    def _steps_by(self, frame: Frame, counter: str) -> bool:
        return self._declared.steps_by(frame.file, frame.function, frame.line, counter)

    async def _wait_for_imports(self) -> None:
        ends = [asyncio.ensure_future(event.wait()) for event in (self._has_imported, self._closing)]
        await asyncio.wait(ends, timeout=LONGEST_IMPORT_S, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()

    def _has_nothing_to_end(self) -> bool:
        return self._closing.is_set() and self._counter.loop is None

    async def _pause(self) -> None:
        """Wait for the next reading, or for the end."""
        self._counter.expect_bar(self._clock.now_ns() < self._bar_until_ns)
        pause_s = self._cadence.pause_s(self._counter.wish())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._closing.wait(), pause_s)

    async def _read(self) -> None:
        """Take a reading and hand over what it says."""
        self._declared.allow_more()
        words = self._executable, self._identity.pid, self._clock, self._declared.counters_at
        try:
            reading = await asyncio.to_thread(read_counter, *words)
        except CounterUnread as error:
            self._cadence.spend(self._clock.now_ns(), error.cpu_ns)
            return
        self._cadence.spend(self._clock.now_ns(), reading.cpu_ns)
        self.take(reading)

    def take(self, reading: CounterReading) -> None:
        """Hand over what a reading says."""
        before = self._counter.loop
        self._store(self._counter.take(reading))
        loop = self._counter.loop
        if loop is not None and loop is not before:
            self._put(EventHappened(self._clock.now_ns(), FOUND_KIND, str(loop), self._identity))

    def _store(self, counts: list[Count]) -> None:
        for count in counts:
            steps = Point(COUNT_SERIES, count.steps, self._identity)
            error = Point(ERROR_SERIES, count.error_steps, self._identity)
            self._put(PointsTaken(count.at_ns, (steps, error)))
