"""Watches a run for hangs: two looks at a quiet run, half of the patience apart, have to see the same.

A run that is not quiet hangs where it takes no step and every sample of its main threads shows one stack: it spins.

Takes records on their way to the run file, asks for looks, and puts what it finds. Knows nothing of how a run begins or
ends.
"""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.hangs.cause import (
    Cause,
    Death,
    ends_by_itself,
    find_cause,
    is_waiting_for_work,
)
from profd.daemon.hangs.look import Look, is_training, name_of_member, take_look
from profd.daemon.hangs.stillness import SpinWatch, Stillness
from profd.daemon.store.records import (
    EventHappened,
    HangEnded,
    HangFound,
    HangReport,
    Identity,
    PointsTaken,
    ProcessEnded,
    Record,
    RecordingTaken,
)
from profd.daemon.tree.tree import Member


class Hook:
    """A shell command that is told of hangs through its environment; none where ``command`` is None."""

    def __init__(self, command: str | None) -> None:
        self._command = command
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, variables: Mapping[str, str]) -> str | None:
        """Start the command with these variables; returns why it could not be started, None where it was."""
        if self._command is None:
            return None
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **variables},
            )
        except (OSError, ValueError) as error:
            return f"the command for hangs could not be started ({error})"
        self._running.append(process)
        return None

    def running(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Return those that were started and not taken leave of."""
        return tuple(self._running)

    def reap(self) -> None:
        """Take leave of those that have ended, so that none is left as a zombie."""
        self._running = [process for process in self._running if process.poll() is None]


# A run whose steps are long stands still for long.
PATIENCE_STEPS = 10
# What ends by itself (a sleep, a disk that writes) gets so many times the patience, and so does what computes.
PATIENCE_IN_SLEEP = 4
# To have said it within the time that was asked for: a reading's age, and two looks.
_EARLY_SHARE, _MOST_EARLY_S = 0.2, 3.0
_TICK_S = 0.5
_DEATH_BEFORE_NS = 10 * SECOND_NS
_MOST_DEATHS = 64

TakeLook = Callable[..., Look]


class HangWatch:
    """Tells hangs of a run, and when it goes on; ``put`` takes the records, ``members`` says who is there."""

    def __init__(
        self,
        after_s: float,
        clock: Clock,
        members: Callable[[], Collection[Member]],
        put: Callable[[Record], object],
        *,
        hook: Hook | None = None,
        variables: Mapping[str, str] | None = None,
        look: TakeLook = take_look,
    ) -> None:
        """Call it a hang where there is no progress for ``after_s``; ``variables`` name the run to the hook."""
        self.after_s = after_s
        self._clock = clock
        self._members = members
        self._put = put
        self._hook = hook or Hook(None)
        self._variables = dict(variables or {})
        self._look = look
        self._inbox: queue.SimpleQueue[PointsTaken | ProcessEnded | RecordingTaken] = queue.SimpleQueue()
        self._stillness = Stillness()
        self._spin = SpinWatch(clock, self._stillness, lambda mains_only: self._take_look(mains_only=mains_only))
        self._deaths: deque[Death] = deque(maxlen=_MOST_DEATHS)
        self._names: dict[Identity, str] = {}
        self._first: Look | None = None
        self._hang: HangFound | None = None
        self._is_spin = False
        self._task: asyncio.Task[None] | None = None

    def take(self, record: Record) -> None:
        """Take in a record on its way to the run file, in whichever thread."""
        if isinstance(record, PointsTaken | ProcessEnded | RecordingTaken):
            self._inbox.put(record)

    def start(self) -> None:
        """Watch from now on, in the running event loop."""
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._say_failure)

    async def close(self) -> None:
        """Watch no more; a look that is under way is not waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _say_failure(self, task: asyncio.Task[None]) -> None:
        """Say what ended the watch: the recording goes on without it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            traceback.print_exception(error)
            self._put(EventHappened(self._clock.now_ns(), "error", f"hangs are no longer watched for: {error!r}"))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(min(_TICK_S, self.after_s / 6))
            await self.check()

    async def check(self) -> None:
        """Take in what came, and tell a hang, or its end, where there is one now."""
        self._hook.reap()
        while not self._inbox.empty():
            self._take_in(self._inbox.get())
        self._names = {member.identity: name_of_member(member) for member in self._members()}
        self._spin.keep({member.identity for member in self._members() if is_training(member)})
        if self._hang is not None:
            self._check_end(self._hang)
            return
        await self._check_quiet()
        if self._hang is None and (look := await self._spin.check(PATIENCE_IN_SLEEP * self.patience_s())):
            self._tell(look, self._spin.stood_s(), is_spin=True)

    async def _check_quiet(self) -> None:
        quiet_s = self._stillness.quiet_s()
        if quiet_s < self.patience_s() / 2:
            self._first = None
        elif self._first is None:
            self._first = await self._take_look(mains_only=True)
        elif quiet_s >= self.due_s() and self._seconds_since(self._first) >= self.due_s() - self.patience_s() / 2:
            await self._judge(self._first, quiet_s)

    def _seconds_since(self, look: Look) -> float:
        return (self._clock.now_ns() - look.at_ns) / SECOND_NS

    def patience_s(self) -> float:
        """Return for how long there may be no progress: longer where the steps of the run are long."""
        return max(self.after_s, PATIENCE_STEPS * self._stillness.step_s)

    def due_s(self) -> float:
        """Return when it is to be judged: a little before the patience is over."""
        patience_s = self.patience_s()
        return patience_s - min(_EARLY_SHARE * patience_s, _MOST_EARLY_S)

    def _take_in(self, record: PointsTaken | ProcessEnded | RecordingTaken) -> None:
        if isinstance(record, PointsTaken):
            self._stillness.take(record)
        elif isinstance(record, RecordingTaken):
            self._spin.take(record)
        else:
            self._take_death(record)

    def _take_death(self, record: ProcessEnded) -> None:
        who = f"{self._names.get(record.identity, 'process')} (pid {record.identity.pid})"
        self._deaths.append(Death(record.at_ns, who, record.exit_code, record.exit_signal))

    async def _take_look(self, *, mains_only: bool) -> Look | None:
        """Look at those who train, or at all; None where no one trains."""
        members = list(self._members())
        if not any(map(is_training, members)):
            return None
        return await asyncio.to_thread(partial(self._look, members, self._clock.now_ns(), mains_only=mains_only))

    async def _judge(self, first: Look, quiet_s: float) -> None:
        """Look again; say that it hangs where all is as it was, and begin anew where it is not."""
        second = await self._take_look(mains_only=False)
        if second is None or self._has_moved(first, second):
            self._first = second
        elif not self._may_go_on(second, quiet_s):
            self._tell(second, quiet_s)

    def _has_moved(self, first: Look, second: Look) -> bool:
        """Say whether anything went on between two looks."""
        stillness, seconds = self._stillness, (second.at_ns - first.at_ns) / SECOND_NS
        if stillness.has_stepped_since(first.at_ns) or stillness.gpu_moves_since(first.at_ns):
            return True
        steps_are_known = stillness.step_ns is not None
        if second.counters.moved_since(first.counters, seconds, steps_are_known=steps_are_known):
            return True
        before, now = first.main_stacks(), second.main_stacks()
        return not now or any(before.get(identity, stack) != stack for identity, stack in now.items())

    def _may_go_on(self, look: Look, quiet_s: float) -> bool:
        """Say whether all wait for what is no hang, or not yet."""
        if self._stillness.step_ns is None and is_waiting_for_work(look):
            return True
        return ends_by_itself(look) and quiet_s < PATIENCE_IN_SLEEP * self.patience_s()

    def _tell(self, look: Look, quiet_s: float, *, is_spin: bool = False) -> None:
        now_ns = self._clock.now_ns()
        since_ns = now_ns - int(quiet_s * SECOND_NS)
        cause = find_cause(look, [death for death in self._deaths if death.at_ns >= since_ns - _DEATH_BEFORE_NS])
        report = HangReport(cause.group, look.groups(), tuple(self._facts(look, since_ns)))
        text = f"no progress for {quiet_s:.0f} s ({cause.group}): {cause.text}"
        self._hang, self._first, self._is_spin = HangFound(now_ns, since_ns, text, report), None, is_spin
        self._put(self._hang)
        self._put(EventHappened(now_ns, "hang", text))
        self._call_hook(cause, text)

    def _facts(self, look: Look, since_ns: int) -> list[str]:
        """Return lines on what else is known."""
        facts = []
        if self._stillness.step_ns is not None:
            ago_s = (self._clock.now_ns() - self._stillness.step_ns) / SECOND_NS
            facts.append(f"the last step that was seen is {self._stillness.last_step}, {ago_s:.0f} s before")
        facts += [death.in_words() for death in self._deaths if death.at_ns >= since_ns - _DEATH_BEFORE_NS]
        facts += self._stillness.gpu_facts(since_ns)
        if look.unread:
            facts.append(f"the stacks of {look.unread} more processes were not read")
        return facts

    def _call_hook(self, cause: Cause, text: str) -> None:
        variables = {**self._variables, "PROFD_HANG": text, "PROFD_HANG_CAUSE": cause.group}
        failure = self._hook.start(variables)
        if failure is not None:
            self._put(EventHappened(self._clock.now_ns(), "error", failure))

    def _check_end(self, hang: HangFound) -> None:
        """Say that a run goes on after a hang."""
        now_ns = self._clock.now_ns()
        moves = self._spin.has_moved_since if self._is_spin else self._stillness.is_busy_since
        if not (self._stillness.has_stepped_since(hang.at_ns) or moves(hang.at_ns)):
            return
        lasted_s = (now_ns - hang.since_ns) / SECOND_NS
        self._hang = self._first = None
        self._stillness.forget()
        self._put(HangEnded(now_ns, hang.at_ns))
        self._put(EventHappened(now_ns, "hang", f"progress again, after {lasted_s:.0f} s without"))
