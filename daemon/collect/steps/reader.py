"""Follows the steps of one training process from outside: finds its loop in the samples, and reads what counts it.

A reading takes about 0.1 ms of CPU time; there are up to ten a second, and more where that says how many rounds an
epoch has. What is stored: `step_count` and `step_count_error` as series, and an event that names the source.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.interpreter.integers import Global, Local, Variable
from profd.daemon.collect.interpreter.memory import Unreadable
from profd.daemon.collect.steps.count import Count
from profd.daemon.collect.steps.declared import Declared
from profd.daemon.collect.steps.log import OutputFile, StepLog
from profd.daemon.collect.steps.loop import Stack, StepLoop, find_loop
from profd.daemon.collect.steps.sources import Program, Source, open_program
from profd.daemon.store.records import EventHappened, Identity, Point, PointsTaken, Record
from profd.daemon.userfiles import files_of

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
FOUND_KIND = "counter"
DOUBT_KIND = "steps disagree"
LOG = "the script's own log"

READ_S = 0.1
FINE_S = 0.012
END_S = 0.002
SEARCH_S = 0.2
STORE_NS = SECOND_NS
# What stands still for so many usual steps, or for so long, pauses.
_STILL_STEPS = 2.0
_LONGEST_STEP_S = 10.0
# Readings may take 2 ms a second in the long run, and so much more at first: it tells how long an epoch is.
EARNED_SHARE = 0.002
CAPITAL_S = 0.15
# To find the loop costs more once: that is not held against the next readings for longer than half a second.
MOST_DEBT_S = 0.001
_PAIR_TRIES = 5
_CHECK_NS = SECOND_NS
_HEARD = 64


class _Check(NamedTuple):
    """Another source of the same loop: the round that it showed when the first one had counted so many."""

    source: Source
    number: int
    rounds: int


class StepReader:
    """Reads the steps of one process. One thread calls ``poll``; any thread may call ``see`` and ``hear``."""

    def __init__(
        self,
        identity: Identity,
        clock: Clock,
        put: Callable[[Record], object],
        declared: Declared | None = None,
        attach: Callable[[int, Declared], Program] = open_program,
    ) -> None:
        """Hand records to ``put``; ``declared`` is what the source files of the process say."""
        self._identity = identity
        self._clock = clock
        self._put = put
        self._files = files_of(identity.pid)
        self._declared = declared or Declared(self._files)
        self._attach = attach
        self._program: Program | None = None
        self._stacks: tuple[Sequence[Stack], int] | None = None
        self._heard: deque[tuple[int, bytes]] = deque(maxlen=_HEARD)
        self._output: OutputFile | None = None
        self._log = StepLog()
        self._loop: StepLoop | None = None
        self._rival: tuple[str, int] | None = None
        self._source: Source | None = None
        self._outside: Variable | None = None
        self._every = 1
        self._count = Count()
        self._before = 0
        self._error_before = 0
        self._bound_ns = 0
        self._check: _Check | None = None
        self._stored: tuple[int, int] | None = None
        self._counted_by: str | None = None
        self._counted_in: tuple[str, int] | None = None
        self._is_lost = False
        self._off_since_ns = 0
        self._is_pause = False
        """Whether samples show no other loop since this one was left."""
        self._goes_on = False
        self._balance_s = CAPITAL_S
        self._earned_ns = clock.now_ns()

    def see(self, stacks: Sequence[Stack], since_ns: int) -> None:
        """Take in what the main thread did since a time, up to a moment ago."""
        self._stacks = stacks, since_ns

    def hear(self, data: bytes) -> None:
        """Take in what the script wrote to its terminal."""
        self._heard.append((self._clock.now_ns(), data))

    def poll(self) -> float:
        """Read once, and return in how many seconds to read again."""
        begun_ns = time.thread_time_ns()
        try:
            pause_s = self._poll()
        except Unreadable:  # it has ended, or what was followed is elsewhere by now
            self._source, pause_s = None, SEARCH_S
        now_ns = self._clock.now_ns()
        self._balance_s += (now_ns - self._earned_ns) / SECOND_NS * EARNED_SHARE
        self._balance_s = min(self._balance_s, CAPITAL_S) - (time.thread_time_ns() - begun_ns) / SECOND_NS
        self._balance_s = max(self._balance_s, -MOST_DEBT_S)
        self._earned_ns = now_ns
        return max(pause_s, -self._balance_s / EARNED_SHARE)

    def end(self) -> None:
        """Take the last reading, so that the count ends where the recording ends, and store what is known."""
        with contextlib.suppress(Unreadable):
            if self._source is not None:
                self._read(self._source)
        if self._count.is_started:
            self._store(self._count.at_ns, is_last=True)
        if self._output is not None:
            self._output.close()
        if self._program is not None:
            self._program.close()

    def _poll(self) -> float:
        seen, self._stacks = self._stacks, None
        if seen is not None:
            self._find(*seen)
        if self._source is None and not self._bind():
            if self._counted_by not in (None, LOG):  # it pauses: what counted it is there again afterwards
                return READ_S
            self._read_log()
            return SEARCH_S
        assert self._source is not None
        if not self._read(self._source):
            self._source = None
            return READ_S
        self._store(self._clock.now_ns())
        self._compare()
        return self._pause_s()

    # The loop

    def _find(self, stacks: Sequence[Stack], since_ns: int) -> None:
        """Find the loop of the steps in stacks; another one than now has to be seen twice, or that one gone."""
        found = find_loop(stacks, self._declared)
        if found is None or (self._loop is not None and found.key == self._loop.key):
            self._rival = None
            self._is_pause = 0 < self._off_since_ns <= since_ns
            return
        is_followed = self._loop is not None and self._source is not None and not self._off_since_ns
        if is_followed and self._rival != found.key:
            self._rival = found.key
            return
        self._loop, self._rival, self._source, self._counted_by = found, None, None, None

    def _begin(self, source: str) -> None:
        """Count by another source from now on: of a loop that comes after those before, or of the same one."""
        assert self._loop is not None
        is_first = self._counted_in is None
        if self._count.is_started:
            self._goes_on = self._counted_in == self._loop.key
            self._count.complete(0.0 if self._goes_on else READ_S)
            self._before, self._error_before = self._made()
        self._counted_by, self._counted_in = source, self._loop.key
        self._count, self._every = Count(), 1
        if self._source is not None:
            self._count = Count(is_added=self._source.is_added, is_late=self._source.is_late)
        if is_first and self._source is not None:
            # The script's own number: that of a loop that goes on from a checkpoint begins there.
            self._before = self._source.start // self._source.stride

    def _bind(self) -> bool:
        """Find what counts the rounds of the loop now; say whether anything does."""
        if self._loop is None or self._is_lost:
            return False
        if self._program is None:
            try:
                self._program = self._attach(self._identity.pid, self._declared)
            except Unreadable as error:
                self._is_lost = True
                text = f"its steps are not read: {error}"
                self._put(EventHappened(self._clock.now_ns(), "note", text, self._identity))
                return False
        found = self._program.sources_of(self._loop)
        if not found:
            return False
        self._bound_ns = self._clock.now_ns()
        self._source = found[0]
        self._check = self._checked_by(found)
        self._outside = self._program.outside_of(self._loop)
        if self._source.name != self._counted_by:
            self._begin(self._source.name)
            self._every = self._updates_every(self._source)
            self._put(EventHappened(self._bound_ns, FOUND_KIND, self._named(self._source), self._identity))
        return True

    def _updates_every(self, source: Source) -> int:
        """Return the rounds for each step of the optimizer, where the source says so; 1 otherwise."""
        assert self._loop is not None
        assert self._program is not None
        every = self._loop.place.loop.every
        if source.of_updates or every in (None, ""):
            return 1
        if isinstance(every, str):
            every = self._program.number_of(self._loop.place, every)
        return every if every and every > 0 else 1

    def _named(self, source: Source) -> str:
        """Return the name of a source, with what its rounds are where the model is not updated in each of them."""
        assert self._loop is not None
        loop = self._loop.place.loop
        if source.of_updates or (loop.every is None and self._loop.micro is None):
            return source.name
        if self._loop.micro is not None:
            micro = self._loop.micro
            return f"{source.name}, optimizer steps; its micro-batches are those of line {micro.loop.first_line}"
        if self._every > 1:
            return f"{source.name}, {self._every} micro-batches for each optimizer step"
        return f"{source.name}, micro-batches"

    # Readings

    def _read(self, source: Source) -> bool:
        """Take a reading; say whether there will be another one of this source."""
        number, epoch = self._pair(source)
        if number is None:  # a variable is there again with its function, an iterator is another one then
            self._off_since_ns = self._off_since_ns or self._clock.now_ns()
            return isinstance(source.variable, Local | Global)
        self._take(
            self._clock.now_ns(),
            number,
            lambda: self._epoch() if epoch is None else epoch,
            self._end(source, number),
        )
        return isinstance(source.variable, Local | Global) or not self._stands_still(self._clock.now_ns())

    def _pair(self, source: Source) -> tuple[int | None, int | None]:
        """Return the round, and where the loop is short the number of the loop around at the same moment."""
        if not self._count.is_started or not self._count.is_short(READ_S):
            return self._round(source), None
        number = before = None
        for _ in range(_PAIR_TRIES):
            before = self._epoch()
            number = self._round(source)
            if before == self._epoch():
                break
        return number, before

    def _round(self, source: Source) -> int | None:
        """Return the round that a loop is in; None where there is nothing to be read."""
        assert self._program is not None
        return self._program.round_of(source)

    def _epoch(self) -> int | None:
        """Return the number of the loop around."""
        assert self._program is not None
        return self._program.value(self._outside) if self._outside is not None else None

    def _end(self, source: Source, number: int) -> int | None:
        """Return how many rounds the loop has, where its iterator tells how many are left."""
        assert self._program is not None
        if source.end is None or self._count.length is not None:
            return None
        left = self._program.value(source.end)
        return None if left is None or self._round(source) != number else number + 1 + left

    def _take(self, at_ns: int, number: int, epoch: Callable[[], int | None], end: int | None) -> None:
        """Take in a round; the first one of another variable of the same loop adds nothing to what was counted."""
        before, _ = self._made()
        is_first = not self._count.is_started
        off_ns = at_ns - self._off_since_ns if self._off_since_ns else 0
        self._off_since_ns, self._is_pause = 0, False
        self._count.take(at_ns, number, epoch, end, off_ns)
        if is_first and self._goes_on:
            self._before += before - self._made()[0]

    def _stands_still(self, at_ns: int) -> bool:
        still_ns = at_ns - max(self._count.changed_ns, self._bound_ns)
        return still_ns > 3 * READ_S * SECOND_NS and still_ns * self._count.per_s() > 4 * SECOND_NS

    def _pause_s(self) -> float:
        if self._count.is_near_end(READ_S) and self._balance_s > 0:
            return END_S
        if self._count.is_uncertain and self._balance_s > CAPITAL_S / 3:
            return FINE_S
        return READ_S

    # What is stored

    def _made(self) -> tuple[int, int]:
        """Return the steps so far, and how many more or fewer there may have been."""
        return self._before + self._count.rounds // self._every, self._error_before + self._count.error

    def _store(self, now_ns: int, *, is_last: bool = False) -> None:
        """Store the count once a second, as of when it was seen to change; as of now where the loop pauses."""
        steps, error = self._made()
        if self._off_since_ns:  # it went on after the last reading, and another loop may go on since
            unknown_s = READ_S if self._is_pause else READ_S + (now_ns - self._off_since_ns) / SECOND_NS
            error += 1 + math.ceil(self._count.per_s() * unknown_s)
        stored_ns, stored = self._stored or (0, 0)
        still_s = (now_ns - self._count.changed_ns) / SECOND_NS
        pauses = still_s * self._count.per_s() > _STILL_STEPS or still_s > _LONGEST_STEP_S
        has_changed = self._count.has_moved if self._stored is None else steps > stored
        at_ns = self._count.changed_ns if has_changed and self._every == 1 else now_ns
        is_due = (has_changed or pauses) and (is_last or now_ns - stored_ns >= STORE_NS)
        if is_due and at_ns > stored_ns:
            steps = max(steps, stored)
            self._stored = at_ns, steps
            points = Point(COUNT_SERIES, steps, self._identity), Point(ERROR_SERIES, error, self._identity)
            self._put(PointsTaken(at_ns, points))

    # Other sources

    def _checked_by(self, found: Sequence[Source]) -> _Check | None:
        """Return another source of the same loop, to be compared with the first."""
        others = [one for one in found[1:] if one.stride == 1 and not one.of_updates]
        return _Check(others[0], -1, 0) if others and not found[0].of_updates else None

    def _compare(self) -> None:
        """Compare the sources now and then; say so once where they disagree by more than their errors."""
        check, at_ns = self._check, self._clock.now_ns()
        if check is None or at_ns - self._bound_ns < _CHECK_NS:
            return
        self._bound_ns = at_ns
        number = self._round(check.source)
        if number is None:
            return
        rounds = self._count.rounds
        if 0 <= check.number <= number:
            apart = (number - check.number) - (rounds - check.rounds)
            if abs(apart) > 2 + self._count.error + self._count.per_s() * READ_S:
                self._check = None
                assert self._source is not None
                text = f"{check.source.name} and {self._source.name} differ by {apart} steps"
                self._put(EventHappened(at_ns, DOUBT_KIND, text, self._identity))
                return
        self._check = check._replace(number=number, rounds=rounds)

    def _read_log(self) -> None:
        """Take the steps that the script says itself, while nothing else tells them."""
        if self._output is None:
            self._output = OutputFile(self._identity.pid, self._files)
        if data := self._output.new():
            self.hear(data)
        while self._heard:
            at_ns, said = self._heard.popleft()
            if self._log.take(said) and self._log.step is not None and self._loop is not None:
                if self._counted_by != LOG:
                    self._begin(LOG)
                    self._put(EventHappened(at_ns, FOUND_KIND, LOG, self._identity))
                self._take(at_ns, self._log.step, lambda: None, None)
                # The last line may be older than it was read.
                self._count.error = max(self._count.error, self._log.apart)
                self._store(at_ns)
