"""Follows the steps of one training process from outside.

It finds the process's loop on its stack and reads what counts it, until it sees the optimizer
at work, which counts its own steps.

A reading takes 0.1 to 0.5 ms of CPU time, and a look at the stack 0.5 to 1 ms. There are ten
readings a second, four of a counter that goes on over epochs, one if its rounds are short besides,
and more if that shows the loop's pace. A loop that nothing counts is looked at once a second.

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
from profd.daemon.frameworks.frames import any_means
from profd.daemon.interpreter.integers import Moved
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.objects import Missing
from profd.daemon.interpreter.tensors import TensorVersion
from profd.daemon.stacks.origin import ANY, Origin
from profd.daemon.steps.count import Count
from profd.daemon.steps.declared import Declared
from profd.daemon.steps.loop import Sight, Sights, StepLoop, sight_of
from profd.daemon.steps.sources import Program, Source
from profd.daemon.store import records
from profd.daemon.store.records import Identity, Point, Put
from profd.daemon.userfiles import files_of

READ_S, FAR_S, SHORT_S, FINE_S = 0.1, 0.25, 1.0, 0.01
IDLE_S = 2.0
# Readings may take 2 ms a second in the long run, and this much more at first, to see the optimizer
# and to learn the loop's pace.
EARNED_SHARE = 0.002
CAPITAL_S = 0.3
# So many stacks without one of an optimizer of torch's show that it is none, or never seen.
_SEEKS = 300
# This many stacks without another loop show that there is none.
_NO_OTHER = 15


@dataclass(eq=False)
class StepReader:
    """Reads the steps of one process.

    One thread calls ``poll``; any may call ``renew``.
    """

    identity: Identity
    clock: Clock
    put: Put
    attach: Callable[[int, Declared], Program] = Program
    origin: Origin = ANY
    """Where its code is from: files that have changed since have no loops."""
    leader: Callable[[], int | None] = lambda: None
    """Returns Python's id of the thread that leads; None if that is the main one."""

    def __post_init__(self) -> None:
        self._files = files_of(self.identity.pid)
        self._renewals: deque[tuple[int, Origin | None]] = deque()
        self._began_ns = 0
        """When the first count began."""
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
        self._loop: StepLoop | None = None
        self._source: Source | None = None
        self._optimizer: Source | None = None
        """What counts the steps of the optimizer that was seen at work."""
        self._seeks = 0
        self._bound_ns = 0
        self._counted: tuple[tuple[str, int], Source] | None = None
        """What counts, or did last, with the key of its loop."""
        self._every = 1
        """The rounds for each step of the optimizer."""
        self._elsewhere = 0
        """How many stacks in a row showed training outside the loop, while its count stood."""
        self._is_lost = False
        """Whether steps were made that nothing counted."""
        self._outside, self._is_coroutine = 0, False
        """How many stacks in a row were not in the loop; whether an event loop runs it."""
        self._count = Count()
        self._has_paused = False

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
        if self._program is not None:
            self._program.close()

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
        may_bind = self._look(program) or self._optimizer is not None
        if self._source is None and self._loop is not None and may_bind:
            self._source = self._bind(program, self._loop)
            self._vain = 0 if self._source is not None else self._vain + 1
        if self._source is None:
            if self._counted_by() is not None:  # it pauses: what counted it is there afterwards
                self._store(self.clock.now_ns())
        elif self._read(program, self._source):
            self._store(self.clock.now_ns())
            return self._pause_s()
        else:
            self._source = None
        if self._optimizer is None and self._seeks_optimizer():
            return FINE_S
        return SHORT_S if self._is_without_counter() else READ_S

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
        return self._vain > 50 and self._counted_by() is None

    def _look(self, program: Program) -> bool:
        """Look at the stack for the loop of the steps, if it is due; say whether it was."""
        now_ns = self.clock.now_ns()
        if now_ns - self._looked_ns < self._wait_s(now_ns) * SECOND_NS:
            if self._seeks_optimizer():
                # Looks far apart tell more: of those that are near, many are at one step.
                self._seeks += 1 if self._optimizer is None else 3
                self._follow_optimizer(program, now_ns)
            return False
        has_moved, self._looked_ns = self._count.changed_ns > self._looked_ns, now_ns
        with contextlib.suppress(Unreadable):
            program.follow(self.leader())
            sight = sight_of(program.stack(), self._declared)
            self._take(sight, has_moved=has_moved)
            self._note_end(self._loop, sight)
        self._follow_optimizer(program, now_ns)
        found = self._sights.loop()
        if found is not None and (self._loop is None or found.place.key != self._loop.place.key):
            self._sights.clear()
            self._doubt_parts(found)
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

    def _note_end(self, loop: StepLoop | None, sight: Sight) -> None:
        """Say that the loop has ended, unless a coroutine has it, which leaves the stack."""
        if loop is None or sight.trains or loop.is_around(sight.stack):
            self._outside, self._is_coroutine = 0, any_means(sight.stack, "event loop")
            return
        self._outside += 1
        if self._outside == _NO_OTHER and not self._is_coroutine:
            self._say(EventKind.LOOP_LEFT, f"{self._in_words(loop)} has ended")

    def _in_words(self, loop: StepLoop) -> str:
        file, line = loop.place.key
        return f"the loop at {self._declared.path_of(file)}:{line}"

    def _seeks_optimizer(self) -> bool:
        """Say whether to look for an optimizer at work, also for one that makes more steps."""
        has_loop = self._loop is not None and self._seeks < _SEEKS
        return has_loop and self._balance_s > CAPITAL_S / 3

    def _follow_optimizer(self, program: Program, now_ns: int) -> None:
        """Count by the optimizer that is at work, if no other one makes as many steps."""
        seen, own = None, self._optimizer
        with contextlib.suppress(Missing, Unreadable):
            seen = program.optimizer_steps()
        if seen is None or (own is not None and seen.variable == own.variable):
            return
        made = None if own is None else program.round_of(own)
        if own is not None and made is not None:
            # A critic makes more steps than its generator, and is seen more often.
            is_busier = (program.round_of(seen) or 0) > 1.2 * made + 5
            if is_busier:
                why = f"{own.name} was read, and another one makes more"
                self._say(EventKind.STEPS_LOST, f"steps are not known: {why}", self._began_ns)
                self._counted, self._is_lost = None, True
            elif not self._pauses(now_ns):
                return
        if self._source is not None:
            self._read(program, self._source)
        self._optimizer, self._source = seen, None

    def _doubt_parts(self, found: StepLoop) -> None:
        """Take back what was counted if the loop was one inside of that of the steps."""
        loop, counted = self._loop, self._counted
        if loop is None or counted is None or isinstance(counted[1].variable, TensorVersion):
            return
        if counted[0] == loop.place.key and found.place.key in {one.key for one in loop.around}:
            why = f"the rounds of {self._in_words(loop)} were counted, which are parts of steps"
            self._say(EventKind.STEPS_LOST, f"steps are not known: {why}", self._began_ns)

    def _lose(self) -> None:
        """Say that nothing counts the training since the count moved last; begin a new count."""
        if self._counted is None or self._loop is None:
            return
        place = self._in_words(self._loop)
        why = f"{place} has no counter that can be read"
        if self._loop.place.key == self._counted[0]:
            why = f"the training goes on outside of {place}"
        at_ns = self._count.changed_ns or self._bound_ns
        self._say(EventKind.STEPS_LOST, f"steps are not counted any more: {why}", at_ns)
        self._before, self._error_before = self._made()
        self._counted = self._source = self._optimizer = None
        self._count, self._elsewhere, self._is_lost = Count(), 0, True

    def _counted_by(self) -> str | None:
        """Return the name of what counts the present loop, or did before it paused."""
        if self._loop is None or self._counted is None or self._counted[0] != self._loop.place.key:
            return None
        return self._counted[1].name

    def _bind(self, program: Program, loop: StepLoop) -> Source | None:
        """Return what counts a loop now, and count by it."""
        if self._optimizer is not None and program.value(self._optimizer.variable) is None:
            self._optimizer = None
        found = program.sources_of(loop) if self._optimizer is None else [self._optimizer]
        if not found:
            return None
        self._bound_ns = self.clock.now_ns()
        # What counted before goes on to count, even if another source happened to be read first.
        counted_by = self._counted_by()
        source = next((one for one in found if one.name == counted_by), found[0])
        if source.name != counted_by or self._optimizer is not None:
            rounds = 1 if source.of_updates else _rounds_of_a_step(program, loop)
            self._begin(loop, source, rounds)
            if source.name != counted_by:
                self._say(EventKind.STEP_SOURCE, source.name + _unit(loop, source, rounds))
        return source

    def _begin(self, loop: StepLoop, source: Source, every: int) -> None:
        """Count by another source from now on: that of the same loop, or of the next one."""
        key, before = self._counted or (None, None)
        self._counted, self._elsewhere = (loop.place.key, source), 0
        is_same = before is not None and source.variable == before.variable
        if source.is_added and is_same and every == self._every:
            return  # one number of all loops
        goes_on, most_before = self._is_lost, 0 if self._is_lost else math.inf
        if self._stored is None and (before is None or self._optimizer is not None):
            # The script's own number: a loop that goes on from a checkpoint begins there.
            self._before, self._error_before = source.start // source.stride, 0
            self._began_ns = self.clock.now_ns()
        elif before is not None:
            goes_on = key == loop.place.key
            most_before = self._end_count(goes_on=goes_on)
        self._is_lost, self._every = False, every
        self._count = Count(
            is_added=source.is_added,
            is_late=source.is_late,
            most_before=most_before,
            goes_on=goes_on,
        )

    def _end_count(self, *, goes_on: bool) -> float:
        """Add the count to those before; return the most rounds made since that the next can show.

        ``goes_on``: the next one is of the same loop.
        """
        since_s = (self.clock.now_ns() - self._count.changed_ns) / SECOND_NS
        rest = (0, 0) if goes_on else self._count.rest(self._usual_s())
        self._before, self._error_before = self._made(*rest)
        return 1.2 * self._count.per_s() * since_s + (0 if goes_on else 2)

    # Readings

    def _read(self, program: Program, source: Source) -> bool:
        """Take a reading; say whether there will be another one of this source."""
        number, at_ns = None, 0
        for _ in range(5):  # its round and the time have to be of the same moment
            begun_ns, number = self.clock.now_ns(), program.round_of(source)
            at_ns = self.clock.now_ns()
            if at_ns - begun_ns < FINE_S * SECOND_NS:
                break
        is_variable = not isinstance(source.variable, TensorVersion)
        if number is None:
            if self._count.left_ns is None:
                self._sights.clear()
            self._count.leave(at_ns)
            # A variable is there again with its function; a tensor may be another one then.
            return is_variable
        self._count.take(at_ns, number)
        return is_variable or not self._pauses(at_ns)

    def _usual_s(self) -> float:
        """Return the time between two readings in the midst of a loop."""
        # With so many rounds from one reading to the next it is no matter when a round began.
        is_short = self._count.per_s() * SHORT_S >= 4
        usual_s = SHORT_S if is_short else FAR_S
        return usual_s if self._count.is_steady else READ_S

    def _pauses(self, at_ns: int) -> bool:
        """Say whether the count has stood for more than three usual steps, or for ten seconds."""
        still_s = (at_ns - max(self._count.changed_ns, self._bound_ns)) / SECOND_NS
        return still_s > 10 or (
            still_s > max(3 * READ_S, 1.2 * self._usual_s()) and still_s * self._count.per_s() > 3
        )

    def _pause_s(self) -> float:
        is_new = not self._count.is_known and self._balance_s > CAPITAL_S / 3
        if is_new or not self._seeks_optimizer():
            return FINE_S if is_new else self._usual_s()
        # Another one that makes more steps than the known one is met soon, too.
        return FINE_S if self._optimizer is None else READ_S

    # What is stored

    def _made(self, rest: int = 0, rest_error: int = 0) -> tuple[int, int]:
        """Return the steps so far, with the rounds unread, and their error."""
        steps = self._before + (self._count.rounds + rest) // self._every
        return steps, self._error_before + self._count.error + rest_error

    def _is_sure(self, now_ns: int) -> bool:
        """Say whether the count may be stored: nobody knows it while the loop is too fast to read.

        All counts are compared with the first. So that comes from the optimizer if need be, or from
        a pace that is known if the loop is left.
        """
        if not self._count.is_known:
            self._tell_too_fast(now_ns)
            return False
        is_early = self._count.error or now_ns - self._began_ns < SECOND_NS
        if self._stored is None and is_early and self._seeks_optimizer():
            return False
        # It went on after the last reading, but nobody knows how fast.
        return self._count.left_ns is None or (self._stored is not None and self._count.has_moved)

    def _tell_too_fast(self, now_ns: int) -> None:
        if self._bound_ns and now_ns - self._bound_ns > 10 * SECOND_NS:
            self._bound_ns = 0
            why = "their loop begins anew faster than its counter can be read"
            self._say(EventKind.STEPS_LOST, f"steps are not counted: {why}")

    def _store(self, now_ns: int, *, is_last: bool = False) -> None:
        """Store the count once a second, and at both ends of a pause.

        So nobody extrapolates over the pause.
        """
        if not self._is_sure(now_ns) and not (is_last and self._count.is_known):
            return
        left_ns = self._count.left_ns
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
