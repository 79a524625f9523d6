"""Follows the steps of one training process from outside: finds its loop on its stack, and reads what counts it.

A reading takes 0.1 ms of CPU time, and 0.02 ms where nothing has changed. There are ten a second, and more where that
says how many rounds an epoch has. What is stored: `step_count` and `step_count_error` as series, and an event that
names the source.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.interpreter.integers import Global, Local, Moved, Variable
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.steps.count import CLOSE_ROUNDS, Count
from profd.daemon.steps.declared import Declared
from profd.daemon.steps.log import OutputFile, StepLog
from profd.daemon.steps.loop import Place, Stack, StepLoop, find_loop, trains
from profd.daemon.steps.sources import Program, Source, open_program
from profd.daemon.store.records import EventHappened, Identity, Point, PointsTaken, Record
from profd.daemon.userfiles import files_of

COUNT_SERIES = "step_count"
ERROR_SERIES = "step_count_error"
FOUND_KIND = "counter"
DOUBT_KIND = "steps disagree"
LOG = "the script's own log"

READ_S = 0.1
FINE_S = 0.005
END_S = 0.002
LOOK_S = 2.0
MOST_TRIES = 100
RETRY_S = 2.0
STORE_NS = SECOND_NS
PAUSE_NS = SECOND_NS // 4
# What stands still for so many usual steps, or for so long, pauses.
_STILL_STEPS = 3.0
_LONGEST_STEP_S = 10.0
# Readings may take 2 ms a second in the long run, and so much more at first: it tells how long an epoch is.
EARNED_SHARE = 0.002
CAPITAL_S = 0.3
# To find the loop costs more once: that is not held against the next readings for longer than half a second.
MOST_DEBT_S = 0.001
_PAIR_TRIES = 5
_CHECK_NS = SECOND_NS
_HEARD = 64
_STACKS = 40
# So many stacks without another loop say that there is none.
_NO_OTHER = 15


class _Check(NamedTuple):
    """Another source of the same loop: the round that it showed when the first one had counted so many."""

    source: Source
    number: int
    rounds: int


class StepReader:
    """Reads the steps of one process. One thread calls ``poll``; any thread may call ``hear``."""

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
        self._tries = 0
        self._stacks: deque[Stack] = deque(maxlen=_STACKS)
        self._looked_ns = 0
        self._suspects = False
        """Whether a stack that was looked at trains."""
        self._heard: deque[tuple[int, bytes]] = deque(maxlen=_HEARD)
        self._output: OutputFile | None = None
        self._log = StepLog()
        self._loop: StepLoop | None = None
        self._source: Source | None = None
        self._outside: Variable | None = None
        self._every = 1
        self._count = Count()
        self._before = 0
        self._error_before = 0
        self._bound_ns = 0
        self._check: _Check | None = None
        self._stored: tuple[int, int] | None = None
        self._has_paused = False
        self._counted_by: str | None = None
        self._counted_in: tuple[str, int] | None = None
        self._counted: Variable | None = None
        self._off_since_ns = 0
        self._off_until_ns = 0
        """From when to when nobody was seen in the loop; 0 while the program is in it."""
        self._goes_on = False
        self._balance_s = CAPITAL_S
        self._earned_ns = clock.now_ns()

    def hear(self, data: bytes) -> None:
        """Take in what the script wrote to its terminal."""
        self._heard.append((self._clock.now_ns(), data))

    def poll(self) -> float:
        """Read once, and return in how many seconds to read again."""
        begun_ns = time.thread_time_ns()
        try:
            pause_s = self._poll()
        except Unreadable:  # it has ended, or what was followed is elsewhere by now
            self._source, pause_s = None, READ_S
        except Moved:
            pause_s = READ_S
        now_ns = self._clock.now_ns()
        self._balance_s += (now_ns - self._earned_ns) / SECOND_NS * EARNED_SHARE
        self._balance_s = min(self._balance_s, CAPITAL_S) - (time.thread_time_ns() - begun_ns) / SECOND_NS
        self._balance_s = max(self._balance_s, -MOST_DEBT_S)
        self._earned_ns = now_ns
        return max(pause_s, -self._balance_s / EARNED_SHARE)

    def end(self) -> None:
        """Take the last reading, so that the count ends where the recording ends, and store what is known."""
        with contextlib.suppress(Unreadable, Moved):
            if self._source is not None:
                self._read(self._source)
        if self._count.is_started:
            self._store(self._count.at_ns, is_last=True)
        if self._output is not None:
            self._output.close()
        if self._program is not None:
            self._program.close()

    def _poll(self) -> float:
        if self._program is None:
            return self._open()
        self._look(self._program)
        if self._source is None and not self._bind(self._program):
            if self._counted_by not in (None, LOG):  # it pauses: what counted it is there again afterwards
                self._store(self._clock.now_ns())
                return READ_S
            self._read_log()
            return READ_S
        assert self._source is not None
        if not self._read(self._source):
            self._source = None
            return READ_S
        self._store(self._clock.now_ns())
        self._compare()
        return self._pause_s()

    def _open(self) -> float:
        """Find the interpreter, which may not have begun yet; return in how many seconds to go on."""
        try:
            self._program = self._attach(self._identity.pid, self._declared)
        except Unreadable as error:
            self._tries += 1
            if self._tries == MOST_TRIES:
                text = f"its steps are not read: {error}"
                self._put(EventHappened(self._clock.now_ns(), "note", text, self._identity))
            return READ_S if self._tries < MOST_TRIES else RETRY_S
        return 0.0

    # The loop

    def _look(self, program: Program) -> None:
        """Look at the stack for the loop of the steps: now and then, and often while the one that is known pauses."""
        now_ns = self._clock.now_ns()
        is_going_on = self._source is not None and not self._off_since_ns and not self._pauses(now_ns)
        is_waiting = self._loop is not None and not self._suspects and len(self._stacks) > _NO_OTHER
        wait_s = LOOK_S if is_going_on else READ_S * (len(self._stacks) - _NO_OTHER) if is_waiting else READ_S
        if now_ns - self._looked_ns < wait_s * SECOND_NS:
            return
        self._looked_ns = now_ns
        with contextlib.suppress(Unreadable):
            self._stacks.append(program.stack())
            self._suspects = any(trains(frame) for stack in self._stacks for frame in stack)
        found = find_loop(self._stacks, self._declared)
        if found is not None and (self._loop is None or found.key != self._loop.key):
            self._stacks.clear()
            self._loop, self._source, self._counted_by = found, None, None

    def _begin(self, source: Source | None, every: int = 1) -> None:
        """Count by another source from now on, None for the log: of a loop after those before, or of the same one."""
        assert self._loop is not None
        is_first = self._counted_in is None
        self._counted_by = source.name if source is not None else LOG
        goes_on, self._counted_in = self._counted_in == self._loop.key, self._loop.key
        is_same = source is not None and source.is_added and (source.variable, every) == (self._counted, self._every)
        self._counted = source.variable if source is not None else None
        if is_same:  # one number of all loops
            return
        if self._count.is_started:
            self._goes_on = goes_on
            if not goes_on:
                self._count.complete(self._unread_s())
            self._before, self._error_before = self._made()
        self._count, self._every = Count(), every
        if source is not None:
            self._count = Count(is_added=source.is_added, is_late=source.is_late)
            # The script's own number: that of a loop that goes on from a checkpoint begins there.
            self._before = source.start // source.stride if is_first else self._before

    def _bind(self, program: Program) -> bool:
        """Find what counts the rounds of the loop now; say whether anything does."""
        found = program.sources_of(self._loop) if self._loop is not None else []
        if self._loop is None or not found:
            return False
        self._bound_ns = self._clock.now_ns()
        # What counted before goes on to count, also where another source happened to be read first.
        self._source = next((one for one in found if one.name == self._counted_by), found[0])
        self._check = self._checked_by([one for one in found if one is not self._source])
        self._outside = program.outside_of(self._loop)
        if self._source.name != self._counted_by:
            self._begin(self._source, self._updates_every(program, self._source, self._loop.place))
            self._put(EventHappened(self._bound_ns, FOUND_KIND, self._named(self._source), self._identity))
        return True

    def _updates_every(self, program: Program, source: Source, place: Place) -> int:
        """Return the rounds for each step of the optimizer, where the source says so; 1 otherwise."""
        every = None if source.of_updates else place.loop.every
        if isinstance(every, str):
            every = program.number_of(place, every) if every else None
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
            if not self._off_since_ns:
                self._off_since_ns = self._clock.now_ns()
                self._stacks.clear()
                self._suspects = False
            self._off_until_ns = self._clock.now_ns()
            return isinstance(source.variable, Local | Global)
        self._take(
            self._clock.now_ns(),
            number,
            lambda: self._epoch() if epoch is None else epoch,
            self._end(source, number),
        )
        return isinstance(source.variable, Local | Global) or not self._pauses(self._clock.now_ns())

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

    def _unread_s(self) -> float:
        """Return how long after the last reading the loop was left."""
        return (self._off_since_ns - self._count.at_ns) / SECOND_NS if self._off_since_ns else READ_S

    def _take(self, at_ns: int, number: int, epoch: Callable[[], int | None], end: int | None) -> None:
        """Take in a round; the first one of another variable of the same loop adds nothing to what was counted."""
        before, _ = self._made()
        is_first = not self._count.is_started
        off = (self._off_since_ns, self._off_until_ns) if self._off_since_ns else None
        self._off_since_ns = 0
        self._count.take(at_ns, number, epoch, end, off)
        if is_first and self._goes_on:
            self._before += before - self._made()[0]

    def _pauses(self, at_ns: int) -> bool:
        """Say whether the count stands still for longer than steps take."""
        still_s = (at_ns - max(self._count.changed_ns, self._bound_ns)) / SECOND_NS
        is_long = still_s > 3 * READ_S and still_s * self._count.per_s() > _STILL_STEPS
        return is_long or still_s > _LONGEST_STEP_S

    def _pause_s(self) -> float:
        count = self._count
        if count.is_near_end(READ_S) and self._balance_s > 0:
            return END_S
        if count.length is None and self._balance_s > CAPITAL_S / 3:
            # So often that the last round before the loop begins anew is seen.
            fine_s = 0.6 * CLOSE_ROUNDS / count.per_s() if count.per_s() else READ_S
            if count.is_uncertain or (not self._count.is_added and fine_s >= FINE_S):
                return min(max(fine_s, FINE_S), READ_S)
        return READ_S

    # What is stored

    def _made(self) -> tuple[int, int]:
        """Return the steps so far, and how many more or fewer there may have been."""
        return self._before + self._count.rounds // self._every, self._error_before + self._count.error

    def _store(self, now_ns: int, *, is_last: bool = False) -> None:
        """Store the count once a second, as of when it was seen to change; as of now where the loop pauses.

        A pause is stored when it begins and when it ends, so that nobody goes on counting.
        """
        steps, error = self._made()
        changed_ns = self._count.changed_ns
        if self._off_since_ns:  # it went on after the last reading, and another loop may go on since
            rest, rest_error = self._count.rest(self._unread_s())
            steps, error, changed_ns = steps + rest // self._every, error + rest_error, self._off_since_ns
            if len(self._stacks) < _NO_OTHER or self._suspects:
                error += 1 + math.ceil(self._count.per_s() * max(now_ns - self._off_since_ns, 0) / SECOND_NS)
        stored_ns, stored = self._stored or (0, 0)
        has_changed = self._count.has_moved if self._stored is None else steps > stored
        at_ns = changed_ns if has_changed and self._every == 1 else now_ns
        pauses = bool(self._off_since_ns) or self._pauses(now_ns)
        wait_ns = STORE_NS if pauses == self._has_paused else PAUSE_NS
        is_due = (has_changed or pauses) and (is_last or now_ns - stored_ns >= wait_ns)
        if is_due and at_ns > stored_ns:
            steps, self._has_paused = max(steps, stored), pauses
            self._stored = at_ns, steps
            points = Point(COUNT_SERIES, steps, self._identity), Point(ERROR_SERIES, error, self._identity)
            self._put(PointsTaken(at_ns, points))

    # Other sources

    def _checked_by(self, others: Sequence[Source]) -> _Check | None:
        """Return another source of the same loop, to be compared with the one that counts."""
        rounds = [one for one in others if one.stride == 1 and not one.of_updates]
        return _Check(rounds[0], -1, 0) if rounds and self._source and not self._source.of_updates else None

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
                    self._begin(None)
                    self._put(EventHappened(at_ns, FOUND_KIND, LOG, self._identity))
                self._take(at_ns, self._log.step, lambda: None, None)
                # The last line may be older than it was read.
                self._count.error = max(self._count.error, self._log.apart)
                self._store(at_ns)
