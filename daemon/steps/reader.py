"""Follows the steps of one training process from outside.

It finds the process's loop on its stack and reads what counts it.

A reading takes 0.1 to 0.5 ms of CPU time, and a look at the stack 0.5 to 1 ms. There are ten
readings a second, four while the loop's end is far, one if its rounds are short besides, and more
if that shows how many rounds an epoch has. A loop that nothing counts is looked at once a second.

It stores `step_count` and `step_count_error` as series, and events that name the source or say that
there is none.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.interpreter.integers import Global, Local, Moved
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.stacks.origin import ANY, Origin
from profd.daemon.steps.count import CLOSE_ROUNDS, Count
from profd.daemon.steps.declared import Declared
from profd.daemon.steps.log import OutputFile, StepLog
from profd.daemon.steps.loop import Sight, Sights, StepLoop, sight_of
from profd.daemon.steps.sources import Around, Program, Source
from profd.daemon.store import records
from profd.daemon.store.records import Identity, Point, Record
from profd.daemon.userfiles import files_of

LOG = Source("the script's own log", Global(0, ""))
"""What counts if nothing else does; it is no variable."""
READ_S, FAR_S, SHORT_S, FINE_S, END_S = 0.1, 0.25, 1.0, 0.005, 0.002
IDLE_S = 2.0
# Readings may take 2 ms a second in the long run, and this much more at first, to learn how long an
# epoch is.
EARNED_SHARE = 0.002
CAPITAL_S = 0.3
# This many stacks without another loop show that there is none.
_NO_OTHER = 15


@dataclass(eq=False)
class StepReader:
    """Reads the steps of one process.

    One thread calls ``poll``; any may call ``hear`` and ``renew``.
    """

    identity: Identity
    clock: Clock
    put: Callable[[Record], object]
    attach: Callable[[int, Declared], Program] = Program
    origin: Origin = ANY
    """Where its code is from: files that have changed since have no loops."""

    def __post_init__(self) -> None:
        self._files = files_of(self.identity.pid)
        self._renewals: deque[tuple[int, Origin | None]] = deque()
        self._heard: deque[tuple[int, bytes]] = deque(maxlen=64)
        self._output: OutputFile | None = None
        self._before = self._error_before = 0
        """The steps of the counts before this one, and by how many they may be off."""
        self._stored: tuple[int, int] | None = None
        self._balance_s = CAPITAL_S
        self._earned_ns = self.clock.now_ns()
        self.is_idle = False
        """Whether the process is a program for now that does not train."""
        self._begin_program()

    def _begin_program(self) -> None:
        self._declared = Declared(self._files, self.origin)
        self._program: Program | None = None
        self._tries = 0
        self._sights = Sights()
        self._looked_ns = 0
        self._vain = 0
        """How often in a row nothing was found that counts the loop."""
        self._log = StepLog()
        self._loop: StepLoop | None = None
        self._source: Source | None = None
        self._outside: list[Around] = []
        self._check: tuple[Source, int, int] | None = None
        """Another source of the same loop, its last round, and the rounds counted by then."""
        self._bound_ns = 0
        self._counted: tuple[tuple[str, int], Source] | None = None
        """What counts, or did last, with the key of its loop."""
        self._every = 1
        """The rounds for each step of the optimizer."""
        self._elsewhere = 0
        """How many stacks in a row showed training outside the loop, while its count stood."""
        self._count = Count()
        self._has_paused = False
        self._unsure_firsts = 0
        """How often the first count was given up, as it was not sure."""

    def hear(self, data: bytes) -> None:
        self._heard.append((self.clock.now_ns(), data))

    def renew(self, origin: Origin | None) -> None:
        """Count the steps of another program that the process has become.

        None if that does not train.
        """
        self.is_idle = origin is None
        self._renewals.append((self.clock.now_ns(), origin))

    def poll(self) -> float:
        """Read once, and return in how many seconds to read again."""
        while self._renewals:
            self._take_program(*self._renewals.popleft())
        if self.is_idle:
            return IDLE_S
        begun_ns = time.thread_time_ns()
        try:
            pause_s = self._poll()
        except Unreadable:  # it has ended, or what was followed is elsewhere by now
            self._source, pause_s = None, READ_S
        except Moved:
            pause_s = READ_S
        now_ns = self.clock.now_ns()
        earned_s = min(
            self._balance_s + (now_ns - self._earned_ns) / SECOND_NS * EARNED_SHARE, CAPITAL_S
        )
        # To find the loop costs more, once: that delays the next readings by half a second at most.
        self._balance_s = max(earned_s - (time.thread_time_ns() - begun_ns) / SECOND_NS, -0.001)
        self._earned_ns = now_ns
        return max(pause_s, -self._balance_s / EARNED_SHARE)

    def end(self) -> None:
        """Take the last reading and store it, so that the count ends where the recording ends."""
        with contextlib.suppress(Unreadable, Moved):
            if self._source is not None and self._program is not None:
                self._read(self._program, self._source)
        if self._elsewhere >= 2:
            self._lose()
        if self._count.round is not None:
            self._store(self._count.at_ns, is_last=True)
        for opened in (self._output, self._program):
            if opened is not None:
                opened.close()

    def _take_program(self, at_ns: int, origin: Origin | None) -> None:
        """Begin anew.

        The steps of the program before stay counted, and those of this one come on top.
        """
        if self._elsewhere >= 2:  # as at the end of the process
            self._lose()
        count = self._count
        if count.round is not None and (self._stored is None or count.has_moved):
            rest, error = count.rest(self._usual_s())
            made_ns = int(rest * SECOND_NS / count.per_s()) if count.per_s() else 0
            left_ns = count.at_ns + made_ns if count.left_ns is None else count.left_ns
            self._before, self._error_before = self._made(rest, error)
            self._put_count(min(left_ns, at_ns), self._before, self._error_before)
        if self._program is not None:
            self._program.close()
        self.origin = origin or ANY
        self._begin_program()

    def _poll(self) -> float:
        program = self._program if self._program is not None else self._attach()
        if program is None:
            return READ_S if self._tries < 100 else 2.0
        has_looked = self._look(program)
        may_bind = has_looked or not self._is_without_counter()
        if self._source is None and self._loop is not None and may_bind:
            self._source = self._bind(program, self._loop)
            self._vain = 0 if self._source is not None else self._vain + 1
        if self._source is None:
            if self._is_counted():  # it pauses: what counted it is there again afterwards
                self._store(self.clock.now_ns())
            else:
                self._read_log()
        elif self._read(program, self._source):
            self._store(self.clock.now_ns())
            self._compare(program, self._source)
            return self._pause_s()
        else:
            self._source = None
        return self._pause_without_source_s()

    def _attach(self) -> Program | None:
        """Open the program, whose interpreter may not have begun yet."""
        try:
            self._program = self.attach(self.identity.pid, self._declared)
        except Unreadable as error:
            self._tries += 1
            if self._tries == 100:
                self._say(EventKind.NOTE, f"its steps are not read: {error}")
        return self._program

    def _say(self, kind: EventKind, text: str, at_ns: int | None = None) -> None:
        at_ns = self.clock.now_ns() if at_ns is None else at_ns
        self.put(records.EventHappened(at_ns, kind, text, self.identity))

    # The loop, and what counts it

    def _is_without_counter(self) -> bool:
        """Say whether so many looks for what counts the loop were in vain that they may be rare."""
        return self._vain > 50 and not self._is_counted()

    def _follows_log(self) -> bool:
        """Say whether the script's output has steps, or is a file, whose lines have no times."""
        return self._counted_by() == LOG.name or (self._output is not None and self._output.is_open)

    def _look(self, program: Program) -> bool:
        """Look at the stack for the loop of the steps, if it is due; say whether it was."""
        now_ns = self.clock.now_ns()
        if now_ns - self._looked_ns < self._wait_s(now_ns) * SECOND_NS:
            return False
        has_moved, self._looked_ns = self._count.changed_ns > self._looked_ns, now_ns
        with contextlib.suppress(Unreadable):
            self._take(sight_of(program.stack(), self._declared), has_moved=has_moved)
        found = self._sights.loop()
        if found is not None and (self._loop is None or found.place.key != self._loop.place.key):
            self._sights.clear()
            self._loop, self._source, self._vain = found, None, 0
        # So many stacks in a row with the training elsewhere outnumber all others: its loop is
        # known, and what counts it was looked for.
        if self._elsewhere >= 25:
            self._lose()
        return True

    def _wait_s(self, now_ns: int) -> float:
        """Return the time between two looks: it is short while the known loop pauses."""
        is_in_loop = self._source is not None and self._count.left_ns is None
        if is_in_loop and not self._elsewhere and not self._pauses(now_ns):
            return 2.0
        looks_elsewhere = self._sights.without_training() if self._loop is not None else 0
        wait_s = READ_S * max(looks_elsewhere - _NO_OTHER, 1)
        return max(wait_s, SHORT_S) if self._is_without_counter() else wait_s

    def _take(self, sight: Sight, *, has_moved: bool) -> None:
        """Take a look at the stack: the count ``has_moved`` since the last one."""
        self._sights.take(sight)
        if not sight.trains:
            return
        if self._loop is not None and self._loop.place.key not in sight.keys:
            self._vain = 0  # another loop, which may have a counter
        if self._counted is not None:
            is_counted = has_moved or self._counted[0] in sight.keys
            self._elsewhere = 0 if is_counted else self._elsewhere + 1

    def _lose(self) -> None:
        """Say that nothing counts the training since the count moved last; begin a new count."""
        if self._counted is None or self._loop is None:
            return
        file, line = self._loop.place.key
        place = f"{self._declared.path_of(file)}:{line}"
        why = f"the loop at {place} has no counter that can be read"
        if self._loop.place.key == self._counted[0]:
            why = f"the training goes on outside of the loop at {place}"
        at_ns = self._count.changed_ns or self._bound_ns
        self._say(EventKind.STEPS_LOST, f"steps are not counted any more: {why}", at_ns)
        self._before, self._error_before = self._made()
        self._counted = self._source = None
        self._count, self._elsewhere = Count(), 0

    def _counted_by(self) -> str | None:
        """Return the name of what counts the present loop, or did before it paused."""
        if self._loop is None or self._counted is None or self._counted[0] != self._loop.place.key:
            return None
        return self._counted[1].name

    def _is_counted(self) -> bool:
        """Say whether a variable counts the present loop, or did before it paused."""
        return self._counted_by() not in (None, LOG.name)

    def _bind(self, program: Program, loop: StepLoop) -> Source | None:
        """Return what counts a loop now, and count by it."""
        found = program.sources_of(loop)
        if not found:
            return None
        self._bound_ns = self.clock.now_ns()
        # What counted before goes on to count, even if another source happened to be read first.
        counted_by = self._counted_by()
        source = next((one for one in found if one.name == counted_by), found[0])
        others = [
            one for one in found if one is not source and one.stride == 1 and not one.of_updates
        ]
        self._check = (others[0], -1, 0) if others and not source.of_updates else None
        outside = program.outside_of(loop)
        if outside != self._outside:  # their number is another one now
            self._outside = outside
            self._count.forget_epoch()
        if source.name != counted_by:
            rounds = 1 if source.of_updates else _rounds_of_a_step(program, loop)
            self._begin(loop, source, rounds)
            self._say(EventKind.STEP_SOURCE, source.name + _unit(loop, source, rounds))
        return source

    def _begin(self, loop: StepLoop, source: Source, every: int = 1) -> None:
        """Count by another source from now on: that of the same loop, or of the next one."""
        key, before = self._counted or (None, None)
        self._counted, self._elsewhere = (loop.place.key, source), 0
        is_same = before is not None and source.variable == before.variable
        if source.is_added and is_same and every == self._every:
            return  # one number of all loops
        goes_on = key == loop.place.key and self._count.round is not None
        if self._count.round is not None:
            rest = (0, 0) if goes_on else self._count.rest(self._usual_s())
            self._before, self._error_before = self._made(*rest)
        self._every, self._count = every, self._count_of(source, goes_on=goes_on)
        # The script's own number: a loop that goes on from a checkpoint begins there.
        if before is None and self._stored is None:
            self._before = source.start // source.stride

    def _count_of(self, source: Source, *, goes_on: bool = False) -> Count:
        nearest = self._outside[-1] if len(self._outside) > 1 else None
        early = nearest.rounds if nearest is not None and nearest.breaks else 0
        breaks = self._loop is not None and self._loop.place.loop.breaks
        return Count(
            is_added=source.is_added,
            is_late=source.is_late,
            goes_on=goes_on,
            breaks=breaks,
            early=early,
        )

    # Readings

    def _read(self, program: Program, source: Source) -> bool:
        """Take a reading; say whether there will be another one of this source."""
        epoch, number, at_ns = None, None, 0
        # Its round, the number of the loop around and the time have to be of the same moment.
        for _ in range(5):
            begun_ns = self.clock.now_ns()
            epoch, number = program.epoch_of(self._outside), program.round_of(source)
            at_ns = self.clock.now_ns()
            if at_ns - begun_ns < FINE_S * SECOND_NS and epoch == program.epoch_of(self._outside):
                break
        is_variable = isinstance(source.variable, Local | Global)
        if number is None:
            if self._count.left_ns is None:
                self._sights.clear()
            self._count.leave(at_ns)
            # A variable is there again with its function, an iterator is another one then.
            return is_variable
        end = self._end_of(program, source, number)
        self._count.take(at_ns, number, epoch, end)
        # All counts are compared with the first, so it must be sure. If epochs are too short for
        # that, it is given up after five seconds.
        if self._stored is None and self._count.error and self._unsure_firsts < 50:
            self._unsure_firsts += 1
            self._count = self._count_of(source)
            self._count.take(at_ns, number, epoch, end)
        return is_variable or not self._pauses(at_ns)

    def _end_of(self, program: Program, source: Source, number: int) -> int | None:
        """Return the rounds of a loop if its iterator knows them and they are needed."""
        if source.end is None or not self._count.needs_end:
            return None
        left = program.value(source.end)
        is_same = left is not None and program.round_of(source) == number
        return number + 1 + left if left is not None and is_same else None

    def _usual_s(self) -> float:
        """Return the time between two readings in the midst of a loop."""
        # With so many rounds from one reading to the next it is no matter when a round began.
        is_short = self._count.per_s() * SHORT_S >= 4
        usual_s = SHORT_S if is_short else FAR_S
        return usual_s if self._count.is_far_from_end(4 * usual_s) else READ_S

    def _pauses(self, at_ns: int) -> bool:
        """Say whether the count has stood for more than three usual steps, or for ten seconds."""
        still_s = (at_ns - max(self._count.changed_ns, self._bound_ns)) / SECOND_NS
        return still_s > 10 or (
            still_s > max(3 * READ_S, 1.2 * self._usual_s()) and still_s * self._count.per_s() > 3
        )

    def _pause_s(self) -> float:
        count = self._count
        # This sees the last round before the loop begins anew.
        fine_s = min(0.6 * CLOSE_ROUNDS / count.per_s(), READ_S) if count.per_s() else READ_S
        # If that round differs from epoch to epoch, most readings for it are in vain.
        if count.is_near_end(READ_S) and self._balance_s > (CAPITAL_S / 3 if count.varies else 0):
            return max(fine_s / 2, END_S)
        is_looked_for = count.unsure or (not count.is_added and fine_s >= FINE_S)
        if count.length is None and is_looked_for and self._balance_s > CAPITAL_S / 3:
            return max(fine_s, FINE_S)
        return self._usual_s()

    def _pause_without_source_s(self) -> float:
        if self._is_without_counter() and not self._follows_log():
            return SHORT_S
        # Few stacks show what counts the next epoch: looking more often loses fewer of its rounds.
        is_just_lost = (
            self.clock.now_ns() - self._count.at_ns < SECOND_NS and self._balance_s > CAPITAL_S / 3
        )
        is_variable = self._counted is not None and self._counted[1] is not LOG
        return FINE_S if is_variable and is_just_lost else READ_S

    # What is stored

    def _made(self, rest: int = 0, rest_error: int = 0) -> tuple[int, int]:
        """Return the steps so far, with the rounds unread, and their error."""
        steps = self._before + (self._count.rounds + rest) // self._every
        return steps, self._error_before + self._count.error + rest_error

    def _store(self, now_ns: int, *, is_last: bool = False) -> None:
        """Store the count once a second, and at both ends of a pause.

        So nobody extrapolates over the pause.
        """
        left_ns = self._count.left_ns
        if left_ns is not None and (self._stored is None or not self._count.has_moved):
            return  # it went on after the last reading, but nobody knows how fast
        steps, error = self._made_by(now_ns)
        stored_ns, stored = self._stored or (0, 0)
        has_changed = self._count.has_moved if self._stored is None else steps > stored
        at_ns = now_ns
        if has_changed and self._every == 1:
            at_ns = self._count.changed_ns if left_ns is None else left_ns
        pauses = left_ns is not None or self._pauses(now_ns)
        wait_ns = SECOND_NS if pauses == self._has_paused else SECOND_NS // 4
        is_due = is_last or now_ns - stored_ns >= wait_ns
        if (has_changed or pauses) and is_due and at_ns > stored_ns:
            self._has_paused = pauses
            self._put_count(at_ns, steps, error)

    def _put_count(self, at_ns: int, steps: int, error: int) -> None:
        stored_ns, stored = self._stored or (0, 0)
        if at_ns > stored_ns:
            self._stored = at_ns, max(steps, stored)
            points = (
                Point(records.STEP_COUNT, self._stored[1], self.identity),
                Point(records.STEP_ERROR, error, self.identity),
            )
            self.put(records.PointsTaken(at_ns, points))

    def _made_by(self, now_ns: int) -> tuple[int, int]:
        """Return the steps by now, and their error: another loop may go on if this one is left."""
        left_ns = self._count.left_ns
        if left_ns is None:
            return self._made()
        steps, error = self._made(*self._count.rest(self._usual_s()))
        if self._sights.without_training() < _NO_OTHER:
            since_s = max(now_ns - left_ns, 0) / SECOND_NS
            error += 3 + math.ceil(1.2 * self._count.per_s() * since_s)  # or faster than it did
        return steps, error

    # Other sources

    def _compare(self, program: Program, source: Source) -> None:
        """Compare the sources now and then; say once if they differ by more than their errors."""
        at_ns, rounds = self.clock.now_ns(), self._count.rounds
        if self._check is None or at_ns - self._bound_ns < SECOND_NS:
            return
        self._bound_ns = at_ns
        other, before, rounds_before = self._check
        number = program.round_of(other)
        if number is None:
            return
        self._check = other, number, rounds
        made = rounds - rounds_before
        apart, begins_anew = number - before - made, number < max(before, made)
        most = 2 + self._count.error + self._count.per_s() * READ_S
        if before >= 0 and not begins_anew and abs(apart) > most:
            self._check = None
            self._say(
                EventKind.STEPS_DISAGREE, f"{other.name} and {source.name} differ by {apart} steps"
            )

    def _read_log(self) -> None:
        if self._output is None:
            self._output = OutputFile(self.identity.pid, self._files)
        if data := self._output.new():
            self.hear(data)
        while self._heard:
            at_ns, said = self._heard.popleft()
            step = self._log.take(said)
            if step is not None and self._loop is not None:
                if self._counted_by() != LOG.name:
                    self._begin(self._loop, LOG)
                    self._say(EventKind.STEP_SOURCE, LOG.name, at_ns)
                self._count.take(at_ns, step)
                # The last line may be older than it was read.
                self._count.error = max(self._count.error, self._log.apart)
                self._store(at_ns)


def _rounds_of_a_step(program: Program, loop: StepLoop) -> int:
    """Return how many rounds of a loop make one step of the optimizer; 1 if it is not known."""
    every = loop.place.loop.every
    number = program.number_of(loop.place, every) if isinstance(every, str) and every else every
    return number if isinstance(number, int) and number > 0 else 1


def _unit(loop: StepLoop, source: Source, rounds: int) -> str:
    """Say what the rounds of a loop are, unless they are plain steps."""
    if source.of_updates:
        return ""
    if loop.micro is not None:
        line = loop.micro.loop.first_line
        return f", optimizer steps; its micro-batches are those of line {line}"
    if loop.place.loop.every is None:
        return ""
    return f", {rounds} micro-batches for each optimizer step" if rounds > 1 else ", micro-batches"
