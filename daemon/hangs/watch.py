"""Watch a run for hangs.

Two looks at a quiet run, half of the timeout apart, have to see the same.

A run that is not quiet hangs if it makes no step and every sample of its main threads shows one
stack: it spins. Nothing here stops or touches a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import subprocess
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from profd.daemon.clock import SECOND_NS, Clock, until_tick_s
from profd.daemon.collectives.desync import Progress
from profd.daemon.collectives.ras import Answer
from profd.daemon.events import EventKind
from profd.daemon.frameworks.frames import any_means
from profd.daemon.hangs.cause import (
    Cause,
    Death,
    ends_by_itself,
    find_cause,
    is_frozen,
    is_serving,
    is_waiting_for_user,
    is_waiting_for_work,
    waits_for_requests,
    with_stuck_workers,
)
from profd.daemon.hangs.desync import find_desync, is_at_work, waits_for_device
from profd.daemon.hangs.job import ask_for_dumps, read_dumps
from profd.daemon.hangs.look import Look, LookPair, cost_s, name_of_member, take_look
from profd.daemon.hangs.stall import RunActivity, StackAges, TwoLooks
from profd.daemon.store import records
from profd.daemon.store.records import (
    EventHappened,
    HangFound,
    Identity,
    PointsTaken,
    ProcessEnded,
    RecordingTaken,
)
from profd.daemon.tree.tree import Member


class LookPostponed(Exception):
    """The budget has no room for a look now; the caller asks again with the next check."""


class Hook:
    """A shell command that gets a hang through its environment; none if ``command`` is None."""

    def __init__(self, command: str | None, run: Mapping[str, str] | None = None) -> None:
        """Take the command, and the variables that name the run to it."""
        self._command = command
        self._run = run or {}
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, hang: HangFound, file: Path | None) -> str | None:
        """Start the command; return why it could not be started, or None."""
        ranks = (str(one.rank) for one in hang.report.behind if one.rank is not None)
        pids = (str(one.pid) for one in hang.report.behind if one.pid is not None)
        given = {
            "PROFD_HANG": hang.text,
            "PROFD_HANG_CAUSE": hang.report.cause,
            "PROFD_HANG_FILE": str(file or ""),
            "PROFD_HANG_RANKS": " ".join(ranks),
            "PROFD_HANG_PIDS": " ".join(pids),
        }
        environment = {**os.environ, **self._run, **given}
        command, null = ["/bin/sh", "-c", self._command or ""], subprocess.DEVNULL
        try:
            if self._command is not None:
                started = subprocess.Popen(
                    command, stdin=null, stdout=null, start_new_session=True, env=environment
                )
                self.running.append(started)
        except (OSError, ValueError) as error:
            return f"the command for hangs could not be started ({error})"
        return None

    def reap(self) -> None:
        """Reap the commands that have ended, so that none is left as a zombie."""
        self.running = [process for process in self.running if process.poll() is None]


_Watched = EventHappened | PointsTaken | ProcessEnded | RecordingTaken
LONG = 4
"""Waits that end by themselves, such as a sleep, and computations get so many timeouts."""
_TICK_S = 1.0
_AFTER_READINGS_S = 0.1
"""How long after the tick a check runs: all readers wake at the tick, and are done by then."""
_DUMPS_EVERY_S, _DUMPS_BEFORE_S = 20, 120
_SETTLED_S = 600
"""After this time processes surely have all their communicators.

It counts only if no step was seen.
"""


@dataclass(eq=False)
class HangWatch:
    """Reports that a run hangs, making no progress for ``after_s``, and when it goes on."""

    after_s: float
    clock: Clock
    members: Callable[[], Collection[Member]]
    put: records.Put
    hook: Hook = field(default_factory=lambda: Hook(None))
    look: Callable[..., Look] = take_look
    ask: Callable[[Collection[Member]], Answer | None] | None = None
    """Asks NCCL's RAS; blocks. None if RAS is not to be asked."""
    dumps: Callable[[Collection[Member], int], Mapping[int, str]] = read_dumps
    ask_for_dumps: Callable[[Look], bool] = ask_for_dumps
    """Asks torch for dumps, and returns whether it did; blocks."""
    dump_s: float = 3.0
    """How long the text of a hang waits for them: torch looks each second whether it is asked."""
    grant: Callable[[float], bool] = lambda _: True
    """Returns whether a look may take this many CPU seconds now."""
    add_native: Callable[[Look], tuple[Look, list[str]]] = lambda look: (look, [])
    """Adds native frames to a look, and says why there are none; blocks."""
    write: Callable[[HangFound, Look, Mapping[str, object]], Path | None] = lambda *_: None
    """Writes a text of the hang, and returns its path; blocks, and raises OSError."""

    def __post_init__(self) -> None:
        self._inbox = queue.SimpleQueue[_Watched]()
        self._activity = RunActivity()
        self._ages = StackAges(self.clock, self._activity)
        self._deaths: deque[Death] = deque(maxlen=64)
        self._known: dict[Identity, tuple[Member, int]] = {}
        """The processes, and since when they are known."""
        self._hang: HangFound | None = None
        self._goes_on: Callable[[int], bool] = self._activity.goes_on_since
        """Returns whether what stood still in the hang has moved since a time."""
        self.is_suspicious = False
        """Whether the run has been quiet for so long that it may hang."""
        self._is_wait_said = False
        self._dumps_due_ns, self._dumped, self._silent_until_ns = 0, set[str](), 0
        self._looks = defaultdict[str, TwoLooks](partial(TwoLooks, self.clock, self._take_look))
        self._task: asyncio.Task[None] | None = None

    def take(self, record: records.Record) -> None:
        """Keep a record on its way to the run file for the next check; any thread may call this."""
        counts = EventKind.STEPS_LOST, EventKind.LOOP_LEFT
        if isinstance(record, EventHappened) and record.kind not in counts:
            return
        if isinstance(record, _Watched):
            self._inbox.put(record)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop watching, without waiting for a look that is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.sleep(
                    until_tick_s(min(_TICK_S, self.after_s / 12)) + _AFTER_READINGS_S
                )
                await self.check()
        except Exception as error:  # noqa: BLE001  the recording goes on without it
            traceback.print_exception(error)
            self._say(EventKind.ERROR, f"hangs are no longer watched for: {error!r}")

    async def check(self) -> None:
        self.hook.reap()
        while not self._inbox.empty():
            record = self._inbox.get()
            if isinstance(record, PointsTaken | EventHappened):
                self._activity.take(record)
            elif isinstance(record, RecordingTaken):
                self._ages.take(record)
            else:
                self._deaths.append(self._death(record))
        now_ns, before = self.clock.now_ns(), self._known
        self._known = {
            one.identity: (one, before.get(one.identity, (one, now_ns))[1])
            for one in self.members()
        }
        self._ages.keep({member.identity for member in self.members() if member.is_training})
        with contextlib.suppress(LookPostponed):
            await self._check_all()

    async def _check_all(self) -> None:
        if self._hang is not None:
            self._check_end(self._hang)
            await self._check_dumps()
        else:
            await self._check_quiet()
            await self._check_spin()

    async def _check_dumps(self) -> None:
        """Report once what each rank's flight recorder has written about this hang.

        Torch writes it after a timeout of its own.
        """
        now_ns = self.clock.now_ns()
        if self._hang is None or now_ns < self._dumps_due_ns:
            return
        self._dumps_due_ns = now_ns + _DUMPS_EVERY_S * SECOND_NS
        since_ns = self._hang.since_ns - _DUMPS_BEFORE_S * SECOND_NS
        for text in (await asyncio.to_thread(self.dumps, list(self.members()), since_ns)).values():
            if text not in self._dumped:
                self._dumped.add(text)
                self._say(EventKind.HANG, text)

    async def _find(
        self,
        kind: str,
        stalled_s: float,
        timeout_s: float,
        is_hang: Callable[[LookPair], bool],
        goes_on: Callable[[int], bool],
    ) -> None:
        """Report a run that has been stalled for so long, if two looks at it show a hang."""
        looks = self._looks[kind]
        seen = await looks.check(stalled_s, timeout_s) if self._hang is None else None
        if seen is None or seen.is_job_new:
            return
        if is_hang(seen := seen.with_polls()):
            self._goes_on = goes_on
            look, whys = await self._with_native(seen.second)
            hang = self._report(seen._replace(second=look), stalled_s, whys)
            await self._tell(hang, look)

    async def _tell(self, hang: HangFound, look: Look) -> None:
        """Write the text of a hang, and run the user's command."""
        self._dumped.clear()
        if await asyncio.to_thread(self.ask_for_dumps, look):
            await asyncio.sleep(self.dump_s)
            await self._check_dumps()
        path, gpus = None, self._activity.gpu_readings(hang.at_ns - 300 * SECOND_NS)
        beside = {"GPUs, the last five minutes": gpus, "Flight recorders": sorted(self._dumped)}
        try:
            path = await asyncio.to_thread(self.write, hang, look, beside)
        except Exception as error:  # noqa: BLE001  the hang is reported anyway
            self._say(EventKind.ERROR, f"the text of the hang could not be written ({error})")
        if failure := self.hook.start(hang, path):
            self._say(EventKind.ERROR, failure)

    async def _with_native(self, look: Look) -> tuple[Look, list[str]]:
        """Return a look with native frames, or why there are none: a hang is reported anyway."""
        members = {row.member.identity: row.member for row in look.standing}
        why = "profd's budget has no room for them now"
        if self.grant(cost_s([*members.values()], mains_only=False)):
            try:
                return await asyncio.to_thread(self.add_native, look)
            except Exception as error:  # noqa: BLE001
                traceback.print_exception(error)
                why = repr(error)
        return look, [f"native stacks were not read: {why}"]

    def _death(self, record: ProcessEnded) -> Death:
        pid = record.identity.pid
        member, _ = self._known.get(record.identity, (None, 0))
        name = f"{name_of_member(member) if member else 'process'} (pid {pid})"
        rank = member.rank if member and member.is_training else None
        return Death(record.at_ns, name, record.exit_code, record.exit_signal, rank, pid)

    async def _check_spin(self) -> None:
        """Report a run that uses the CPU and makes no progress.

        It is reported soon if NCCL's counts prove it, else after a long time.
        """
        timeout_s, stood_s, goes_on = self.timeout_s(), self._ages.stood_s(), self._has_new_stack
        if self.ask and self.is_settled() and self.clock.now_ns() >= self._silent_until_ns:
            await self._find("soon spin", stood_s, timeout_s, self._is_proven, goes_on)
        if self._activity.step_ns is not None:  # else nobody knows whether it goes on
            if self._activity.spinning_gpus(self.clock.now_ns() - int(timeout_s / 3 * SECOND_NS)):
                await self._find("soon still", stood_s, timeout_s, self._gpus_spin, goes_on)
            await self._find("late spin", stood_s, LONG * timeout_s, self._has_spun, goes_on)

    def _has_new_stack(self, at_ns: int) -> bool:
        return self._activity.has_stepped_since(at_ns) or self._ages.has_moved_since(at_ns)

    def _gpus_spin(self, looks: LookPair) -> bool:
        """Return whether all wait for their GPUs, in which kernels run and move no data."""
        spinning = self._activity.spinning_gpus(looks.first.at_ns)
        return bool(spinning) and all(map(waits_for_device, looks.second.mains()))

    def _has_spun(self, looks: LookPair) -> bool:
        return looks.has_spun() and looks.verdict.progress is not Progress.GOES_ON

    def _is_proven(self, looks: LookPair) -> bool:
        """Return whether NCCL's counts show a hang.

        Then ranks are behind and do nothing to catch up, or all wait for the GPU.
        """
        progress = looks.verdict.progress
        if looks.has_transferred:
            return False
        if progress is Progress.ALIKE:
            has_stepped = self._activity.step_ns is not None
            are_full = self._activity.gpus_are_full_since(looks.first.at_ns)
            return has_stepped and are_full and all(map(waits_for_device, looks.second.mains()))
        if progress is Progress.BEHIND:
            return not is_at_work(looks, self._cause(looks, self._deaths).behind)
        return progress in (Progress.LOST, Progress.MISMATCH)

    async def _check_quiet(self) -> None:
        """Report a run that uses no CPU time: later if it waits for what ends by itself."""
        timeout_s, quiet_s = self.timeout_s(), self._activity.quiet_s()
        self.is_suspicious = quiet_s >= timeout_s / 3
        goes_on = self._activity.goes_on_since
        await self._find("soon", quiet_s, timeout_s, self._is_stuck, goes_on)
        await self._find("late", quiet_s, LONG * timeout_s, self._is_quiet, goes_on)

    def _is_stuck(self, looks: LookPair) -> bool:
        # A GPU at work may be what is asked for.
        is_busy = looks.polls and self._activity.gpus_are_full_since(looks.first.at_ns)
        return not (is_busy or ends_by_itself(looks.second)) and self._is_quiet(looks)

    def _is_quiet(self, looks: LookPair) -> bool:
        """Return whether a run should go on, and does nothing.

        A frozen one counts as quiet from now on at the earliest.
        """
        now = looks.second
        serves = self._activity.step_ns is None and is_waiting_for_work(now)
        serves |= looks.polls and any(map(waits_for_requests, now.standing))
        serves |= is_serving(now, self._activity.left)
        if serves or is_waiting_for_user(now) or self._has_moved(looks):
            return False
        if is_frozen(now):
            self._activity.forget()
            return False
        return True

    def timeout_s(self) -> float:
        """Return for how long there may be no progress.

        It is longer if the steps of the run are long.
        """
        return max(self.after_s, 10 * self._activity.step_s)

    async def _take_look(self, mains_only: bool) -> Look | None:
        """Look at the processes that train, or at all; returns None if none trains."""
        members = list(self.members())
        if not any(member.is_training for member in members):
            return None
        if not self.grant(cost := cost_s(members, mains_only=mains_only)):
            self._say_postponed(cost)
            raise LookPostponed
        look = await asyncio.to_thread(
            partial(self.look, members, self.clock.now_ns(), mains_only=mains_only)
        )
        if self.ask is None or not self._may_ask(look):
            return look
        answer = await asyncio.to_thread(self.ask, members)
        self._silent_until_ns = 0 if answer else self.clock.now_ns() + _SETTLED_S * SECOND_NS
        return msgspec.structs.replace(look, job=answer)

    def _say_postponed(self, cpu_s: float) -> None:
        if not self._is_wait_said:
            self._is_wait_said = True
            text = f"looks for hangs wait for profd's budget: each takes about {cpu_s:.1f} s of CPU"
            self._say(EventKind.NOTE, text)

    def _may_ask(self, look: Look) -> bool:
        """Return whether all ranks surely have their communicators.

        RAS has a bug before that (NVIDIA/nccl#2346).
        """
        is_making = any(any_means(row.stack, "makes groups") for row in look.mains())
        return not is_making and self.is_settled()

    def is_settled(self) -> bool:
        """Return whether the processes that train are set up.

        They are if they have made a step, or have run for long.
        """
        now_ns = self.clock.now_ns()
        since_ns = max(
            (known_ns for member, known_ns in self._known.values() if member.is_training),
            default=now_ns,
        )
        return (
            self._activity.has_stepped_since(since_ns)
            or now_ns - since_ns >= _SETTLED_S * SECOND_NS
        )

    def _cause(self, looks: LookPair, deaths: Collection[Death]) -> Cause:
        now, died = looks.second, list(deaths)
        return find_desync(now, died, looks.verdict) or find_cause(now, died)

    def _has_moved(self, looks: LookPair) -> bool:
        activity, since_ns = self._activity, looks.first.at_ns
        if activity.has_stepped_since(since_ns) or activity.gpu_moves_since(since_ns):
            return True
        if looks.verdict.progress is Progress.GOES_ON:
            return True
        return looks.has_moved(steps_are_known=activity.step_ns is not None)

    def _report(self, looks: LookPair, quiet_s: float, whys: Sequence[str]) -> HangFound:
        """Report a hang; ``whys`` say which native frames were not read."""
        now_ns = self.clock.now_ns()
        since_ns = now_ns - int(quiet_s * SECOND_NS)
        deaths = [death for death in self._deaths if death.at_ns >= since_ns - 10 * SECOND_NS]
        facts = []
        if (step_ns := self._activity.step_ns) is not None:
            ago_s = (now_ns - step_ns) / SECOND_NS
            facts.append(
                f"the last step that was seen is {self._activity.last_step}, {ago_s:.0f} s before"
            )
        facts += [*(death.in_words() for death in deaths), *self._activity.gpu_facts(since_ns)]
        spinning = self._activity.spinning_gpus(looks.first.at_ns)
        look = looks.second
        if look.unread:
            facts.append(f"the stacks of {look.unread} more processes were not read")
        facts += whys
        cause = self._cause(looks, deaths)
        report = records.HangReport(
            cause.group, with_stuck_workers(look).groups(), tuple(facts), cause.behind
        )
        text = f"no progress for {quiet_s:.0f} s ({cause.group}): {cause.text}"
        if spinning:
            text += f"; a kernel runs in {', '.join(spinning)} and moves no data of its memory"
        self._hang, self.is_suspicious = HangFound(now_ns, since_ns, text, report), False
        self.put(self._hang)
        self._say(EventKind.HANG, text)
        return self._hang

    def _check_end(self, hang: HangFound) -> None:
        if self._goes_on(hang.at_ns):
            now_ns = self.clock.now_ns()
            lasted_s = (now_ns - hang.since_ns) / SECOND_NS
            self._hang = None
            self._activity.forget()
            self.put(records.HangEnded(now_ns, hang.at_ns))
            again = f"progress again, after {lasted_s:.0f} s without"
            self._say(EventKind.HANG, again)

    def _say(self, kind: EventKind, text: str) -> None:
        self.put(EventHappened(self.clock.now_ns(), kind, text))
