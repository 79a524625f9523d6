"""Chain the recordings of one process, without gaps or in turns with other processes.

Without gaps: the next recording is started, the current one is ended once the next one samples, and
both are cut at that time. In turns: of many processes that are alike, one is recorded at a time, so
that their number costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.controlgroups import is_frozen
from profd.daemon.events import EventKind
from profd.daemon.scheduling import FreeCores
from profd.daemon.stacks import assembly
from profd.daemon.stacks.assembly import Threads
from profd.daemon.stacks.evidence import StackEvidence
from profd.daemon.stacks.pyspy import (
    RawRecording,
    RecordingFailed,
    TraceDamaged,
    read_cost_s,
    shortest_cost_s,
)
from profd.daemon.stacks.reads import FROZEN, LATE_NS, STOPPED, Account, ProcessSnapshot
from profd.daemon.stacks.recording import Recording
from profd.daemon.stacks.source import Statements
from profd.daemon.stacks.turns import Turns
from profd.daemon.store.records import EventHappened, GapFound, Identity, Put
from profd.daemon.timerange import EVER, TimeRange

# After py-spy reports that it samples, the next recording runs on for this many mean sampling
# intervals before the cut: by then it has most probably seen something.
OVERLAP_SAMPLES = 3
FIRST_LENGTH_S = 0.5
START_TIMEOUT_S = 20.0
REST_S, WATCH_S = 2.0, 0.1
"""Spent CPU time is known a second later.

A recording takes a core at most, so it is ended at most this much too late.
"""
ENOUGH_S = 0.5
"""A recording that has taken this much CPU ends with its first sample."""
MOST_OF_A_MINUTE = 2 / 3  # the rest is for looks
COST_VARIES = 1.25
"""A recording may take this factor more than the one before: if broken off, its cost is lost."""
# factor of the number of threads beyond which an earlier measurement no longer applies
GROWTH = 1.5
IDLE_CORES = 0.02
"""A process that only waits is recorded as often as one that takes this much CPU."""
RETRY_FIRST_S = 0.05
RETRY_LAST_S = 2.0


class SamplingPace(NamedTuple):
    """How to sample a process, from the next recording on.

    ``length_s`` is how long a recording lasts before the next one, which overlaps it, is started.
    ``rest_ratio`` is how long recording pauses for each second of a turn. While it ``is_unknown``
    what the process is for, turns and pauses last at most an eighth of the process's age.
    """

    rate_hz: int
    length_s: float
    rest_ratio: float = 1.0
    is_unknown: bool = False


class Allowance(NamedTuple):
    """The CPU time that a chain may take when only its recording time is left to reduce.

    By default it is not bounded.

    The chain may take ``cores`` all the time, ``cpu_s`` seconds with the next recording, and
    ``minute_s`` seconds in a whole minute. While ``kept_s`` of them are kept for others, a pause
    goes on. ``early_s`` of them belong to the rest of the session's first minute.
    """

    cores: float = math.inf
    cpu_s: float = math.inf
    minute_s: float = math.inf
    kept_s: float = 0.0
    early_s: float = 0.0


@dataclass(eq=False)
class StackChain:
    """The recordings of one process, from now to its end.

    ``pace`` is called again for each recording.
    """

    executable: str
    identity: Identity
    pace: Callable[[], SamplingPace]
    source: Statements | None
    clock: Clock
    put: Put
    failed: Callable[[str], object] = lambda words: None
    """Takes py-spy's words if a recording could not be started or was lost."""
    explain: Callable[[int], str] = lambda _: ""
    """Finds out why py-spy cannot read a process, by its PID.

    Returns an empty text if it finds no reason. Blocks.
    """
    allowance: Callable[[], Allowance] = Allowance
    grew: Callable[[int], object] = lambda threads: None
    """Takes the number of threads once they are so many that the process's rate takes a core."""

    def __post_init__(self) -> None:
        self._hurry = asyncio.Event()
        self._stop = asyncio.Event()
        self.is_in_turns = True
        self._in_flight: set[Recording] = set()
        self._cores: frozenset[int] | None = None
        self._has_recorded, self._begun_ns = False, self.clock.now_ns()
        self._turn_ns = self._begun_ns
        self._turn_cpu_s = 0.0
        self._has_reported_log = False
        self.is_resting = False
        self._cost_s = 0.0
        self._usual_length_s = FIRST_LENGTH_S
        self._is_rest_said = self._has_grown = self._is_estimate = False
        self._threads_at_begin = 1
        self._threads = Threads()
        self._has_main, self._main_seen_ns = True, 0
        self._evidence = StackEvidence(self.source)
        self._account = Account(self.identity, self._put_gap)
        self._asking: asyncio.Task[None] | None = None

    def hurry(self) -> None:
        """End the current recording now, and let the next one take over.

        The samples of the ended one can then be seen.
        """
        self._hurry.set()

    def stop(self) -> None:
        self._stop.set()
        self._hurry.set()

    def keep_off_core(self, cores: FreeCores) -> None:
        """Let py-spy run on a core other than that of the process's main thread, if that is needed.

        Call it each second.
        """
        stat = processes.read_running(*self.identity) if self._in_flight else None
        if stat is not None:
            self._cores = cores.beside(stat.core)
            for recording in self._in_flight:
                recording.run_on(self._cores)

    def look(self) -> None:
        """Check whether the process runs, and whether py-spy does.

        Call it several times a second.
        """
        for recording in self._in_flight:
            recording.look()
        self._look_at_process()
        if any(recording.is_failing for recording in self._in_flight):
            self._find_out()

    def _look_at_process(self) -> processes.Stat | None:
        stat, now_ns = processes.read_running(*self.identity), self.clock.now_ns()
        if stat is None:
            return None
        if self._account.look(_look_at(stat, now_ns)):
            self._hurry.set()  # py-spy reads the program that is gone
        self._heed_growth(stat.threads)
        self._has_main = stat.state not in "ZX"
        self._main_seen_ns = now_ns if self._has_main else self._main_seen_ns
        return stat

    def _heed_growth(self, threads: int) -> None:
        """End a recording whose rate would take a core, now that there are so many more threads."""
        rate_hz = max((recording.rate_hz for recording in self._in_flight), default=0)
        if threads > GROWTH * self._threads_at_begin and read_cost_s(threads) * rate_hz > 1:
            self._threads_at_begin, self._has_grown = threads, True
            self.grew(threads)
            self._hurry.set()

    def _find_out(self) -> None:
        """Find out why py-spy cannot read, unless that is under way or was done a moment ago."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        cause = await asyncio.to_thread(self.explain, self.identity.pid)
        if cause:
            self._account.find(self.clock.now_ns(), cause)
        await asyncio.sleep(RETRY_LAST_S)

    @property
    def is_recording(self) -> bool:
        return bool(self._in_flight)

    def leave_turns(self) -> None:
        """Record without gaps from now on."""
        self.is_in_turns = False
        self._hurry.set()

    async def run(self) -> None:
        self._account.rest()
        with self._abandoning():
            await self._foresee()
            current, from_ns = await self._begin_patiently(), EVER.from_ns
            while current is not None:
                await self._wait(self._hurry, current.length_s, self._enough)
                # A recording that has ended by itself shows that the process is gone, or has become
                # another program with exec.
                is_followed = (
                    self._goes_on() and not current.ended.done() and self._can_afford(current)
                )
                following = await self._begin() if is_followed else None
                cut_ns = self.clock.now_ns()
                await self._finish(current, TimeRange(from_ns, cut_ns if following else EVER.to_ns))
                current, from_ns = following, cut_ns
                if current is None:
                    await self._rest()
                    current, from_ns = await self._begin_patiently(), EVER.from_ns
            self._account.close(self.clock.now_ns())

    async def run_in_turns(self, turns: Turns) -> None:
        """Record whenever it has its turn.

        This goes on until the process is gone, or the chain is stopped or leaves its turns.
        """
        with self._abandoning():
            await self._foresee()
            while self._goes_on() and self.is_in_turns:
                async with turns.taken(self._due):
                    self._turn_ns, self._turn_cpu_s = self.clock.now_ns(), self._cpu_s()
                    recording = await self._begin() if self._goes_on() else None
                    if recording is not None:
                        await self._wait(self._hurry, recording.length_s, self._enough)
                        self._account.rest()
                        self._can_afford(recording)
                        await self._finish(recording, EVER)
                        # Nothing is recorded in this pause: processes that are alike need not be
                        # sampled all the time.
                        if self.is_in_turns:
                            pace = self.pace()
                            rest_s = recording.length_s * pace.rest_ratio
                            if pace.is_unknown:
                                rest_s = min(rest_s, max(recording.length_s, self._eighth_s()))
                            await self._wait(self._hurry, rest_s)
                await self._rest()
                if recording is None:
                    await self._wait(self._hurry, RETRY_LAST_S)
        await self.run()

    def _due(self) -> float:
        """Return what there is to see: the CPU seconds since its last turn, and a few for waiting.

        A process that is about to end is not kept waiting.
        """
        if not self._goes_on():
            return math.inf
        waited_s = (self.clock.now_ns() - self._turn_ns) / SECOND_NS
        return self._cpu_s() - self._turn_cpu_s + IDLE_CORES * waited_s

    def _cpu_s(self) -> float:
        stat = processes.read_running(*self.identity)
        return stat.cpu_s if stat is not None else 0.0

    def _eighth_s(self) -> float:
        return (self.clock.now_ns() - self._begun_ns) / SECOND_NS / 8

    async def _foresee(self) -> None:
        """Begin with a pause if so many threads will cost more than may be spent all the time."""
        if self._will_cost_more_than(self.allowance().cores):
            self.is_resting = True
            await self._rest()

    def _will_cost_more_than(self, cores: float) -> bool:
        stat = processes.read_running(*self.identity)
        if stat is None or read_cost_s(stat.threads) * self.pace().rate_hz <= cores:
            return False
        self._cost_s, self._is_estimate = shortest_cost_s(stat.threads), True
        return True

    def _can_afford(self, recording: Recording) -> bool:
        """Return whether the cost of a recording may be spent all the time.

        If not, the chain pauses before the next one.
        """
        cores, taken = self.allowance().cores, recording.cost_cores(self._usual_length_s)
        # The measured cost does not apply to the number of threads that there are now.
        self.is_resting = taken > cores or (self._has_grown and self._will_cost_more_than(cores))
        self._has_grown = False
        if self.is_resting and not self._is_rest_said:
            self._say(
                EventKind.NOTE,
                f"to sample it takes {taken:.0%} of a core even at the lowest rate: recordings "
                "pause for as long as profd's budget needs",
            )
        self._is_rest_said = self.is_resting
        return not self.is_resting

    async def _rest(self) -> None:
        """Wait until the budget of this minute has room for the next recording.

        The wait also ends if nearly all of the budget is left. A run that lasts less than a minute
        has that part of a minute's budget, except for its first recording: without a sample, what
        was spent was spent in vain.
        """
        while self.is_resting and self._goes_on():
            self._account.rest()
            await self._wait(self._stop, REST_S)
            allowance = self.allowance()
            left_s, due_s = allowance.cpu_s - allowance.kept_s, self._cost_s
            left_s -= 0.0 if self._is_estimate else allowance.early_s
            if due_s > allowance.minute_s:  # or the cost is not known: try with what a minute has
                due_s = MOST_OF_A_MINUTE * allowance.minute_s
            if left_s > 0 and left_s >= due_s:
                break

    async def _break_off(
        self, recording: Recording, cpu_s: float, enough: asyncio.Future[bool]
    ) -> None:
        """Report when a recording has taken enough, and end it beyond ``cpu_s`` seconds of CPU."""
        while not recording.ended.done():
            is_dear = self.is_resting or recording.sampling_cpu_s() > ENOUGH_S
            if recording.has_sample() and is_dear and not enough.done():
                enough.set_result(True)
            if recording.cpu_s() > cpu_s:
                self._say(
                    EventKind.NOTE,
                    f"what profd's budget leaves of this minute, {cpu_s:.1f} s of CPU, was not "
                    "enough for one recording of it: none is taken until the next minute",
                )
                self._in_flight.discard(recording)
                recording.abandon()
                self._account.rest()
                self.is_resting = True
                self._cost_s = math.inf
                await recording.ended
            await asyncio.sleep(WATCH_S)
        if not enough.done():
            enough.set_result(True)

    def _goes_on(self) -> bool:
        return not self._stop.is_set() and processes.is_running(*self.identity)

    @contextlib.contextmanager
    def _abandoning(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._asking is not None:
                self._asking.cancel()
            for recording in self._in_flight:
                recording.abandon()

    async def _begin_patiently(self) -> Recording | None:
        """Start a recording, again and again while the process lives.

        An interpreter may not be ready yet.
        """
        pause_s = RETRY_FIRST_S
        while self._goes_on():
            recording = await self._begin()
            if recording is not None:
                return recording
            await self._wait(self._hurry, pause_s)
            await self._rest()
            pause_s = min(2 * pause_s, RETRY_LAST_S)
        return None

    async def _begin(self) -> Recording | None:
        """Start a recording and return it once it has sampled for a moment.

        Returns None if it did not sample.
        """
        rate_hz, length_s, _, is_unknown = self.pace()
        self._usual_length_s = length_s
        if self.is_resting:
            length_s = 0.0  # only the overlap is recorded
        elif not self._has_recorded:
            length_s = FIRST_LENGTH_S
        elif is_unknown:
            length_s = min(length_s, max(FIRST_LENGTH_S, self._eighth_s()))
        pid = processes.shown_as(self.identity.pid)
        stat = self._look_at_process()  # an exec before is not one in the recording
        self._threads_at_begin = stat.threads if stat is not None else self._threads_at_begin
        try:
            recording = Recording(self.executable, pid, rate_hz, length_s, self.clock)
        except RecordingFailed as error:
            self._fail(str(error))
            return None
        self._in_flight.add(recording)
        self._enough = recording.ended
        allowance = self.allowance()
        if allowance.cpu_s < math.inf:
            self._enough = asyncio.get_running_loop().create_future()
            is_try = self._cost_s > allowance.minute_s
            most_s = MOST_OF_A_MINUTE * allowance.minute_s if is_try else allowance.cpu_s
            watch = self._break_off(recording, most_s, self._enough)
            asyncio.ensure_future(watch)  # noqa: RUF006  it ends with the recording
        if self._cores is not None:
            recording.run_on(self._cores)
        await self._wait(self._stop, START_TIMEOUT_S, recording.sampling)
        if not recording.sampling.done() or not recording.sampling.result():
            reason = "py-spy did not begin to sample"
            if recording.sampling.done():
                try:
                    await recording.collect()
                except RecordingFailed as error:
                    reason = str(error)
            recording.abandon()
            if recording in self._in_flight:  # else it was broken off, which is said
                self._in_flight.discard(recording)
                self._fail(reason)
            return None
        self._has_recorded = True
        self._is_estimate = False
        is_for_one = self.is_resting and self._enough is not recording.ended
        moment_s = START_TIMEOUT_S if is_for_one else OVERLAP_SAMPLES / recording.rate_hz
        await self._wait(self._stop, moment_s, self._enough)
        return recording

    def _fail(self, words: str) -> None:
        self._account.hear(words)
        self.failed(words)
        self._find_out()

    async def _finish(self, recording: Recording, keep: TimeRange) -> None:
        # Read the ids before the end: a thread that goes while py-spy writes was there until then.
        # Once the process and its threads end one by one, the last known threads are kept.
        is_alive = processes.is_running(*self.identity) and not recording.ended.done()
        ids = processes.thread_ids(self.identity.pid) if is_alive else {}
        # What happened to the process in the last moment belongs to the end of this recording.
        self._look_at_process()
        main_seen_ns = None if self._has_main else self._main_seen_ns
        self._threads = Threads(ids or self._threads.ids, bool(ids), main_seen_ns)
        recording.stop()
        try:
            raw = await recording.collect()
            self._cost_s = COST_VARIES * recording.cpu_s() if self.is_resting else 0.0
            # Its log has either every failed read, or none that profd understands.
            if raw.errors and not raw.failed and not self._has_reported_log:
                self._has_reported_log = True
                self._say(
                    EventKind.LOSS,
                    f"py-spy failed to read {raw.errors} stacks, and profd cannot read from its "
                    "log when: code that calls and returns all the time may be shown too small. "
                    "`profd doctor` shows which py-spy is known",
                )
            self._keep(raw, recording.rate_hz, keep)
        except (RecordingFailed, TraceDamaged) as error:
            if recording in self._in_flight:
                self._say(EventKind.LOSS, f"a recording was lost: {error}")
                self.failed(str(error))
        self._in_flight.discard(recording)

    def _keep(self, raw: RawRecording, rate_hz: int, keep: TimeRange) -> None:
        """Store what a recording has read, and why it has not read the rest."""
        raw = msgspec.structs.replace(raw, spells=tuple(self._account.spells(raw.zero_ns)))
        records = assembly.assemble(
            raw, self.identity, rate_hz, keep, self._threads, self._evidence
        )
        read = [(one.start_ns, one.end_ns) for one in records if one.end_ns > one.start_ns]
        self._account.take(read, SECOND_NS // rate_hz, [(one.at_ns, one.why) for one in raw.failed])
        for record in records:
            self.put(record)

    def _put_gap(self, gap: GapFound) -> None:
        self.put(gap)
        if gap.end_ns - gap.start_ns >= LATE_NS:
            length_s = (gap.end_ns - gap.start_ns) / SECOND_NS
            text = f"not read for {length_s:.1f} s: {gap.reason} ({gap.text})"
            self.put(EventHappened(gap.start_ns, EventKind.GAP, text, self.identity))

    async def _wait(
        self, event: asyncio.Event, timeout_s: float, future: asyncio.Future[bool] | None = None
    ) -> None:
        """Wait for the event or the future, whichever comes first, or until the timeout.

        A request to hurry counts as served by then, unless the chain is to stop.
        """
        happened = asyncio.ensure_future(event.wait())
        waited: set[asyncio.Future[Any]] = {happened} if future is None else {happened, future}
        try:
            await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            happened.cancel()
        if not self._stop.is_set():
            self._hurry.clear()

    def _say(self, kind: EventKind, text: str) -> None:
        self.put(EventHappened(self.clock.now_ns(), kind, text, self.identity))


def _look_at(stat: processes.Stat, now_ns: int) -> ProcessSnapshot:
    """Return what the process's main thread shows of it now.

    Signals and control groups pause all threads of a process.
    """
    # Most looks find a training at work: that is enough to know.
    is_frozen_now = stat.state != "R" and is_frozen(stat.pid, stat.pid)
    pause = STOPPED if stat.state in "Tt" else FROZEN if is_frozen_now else ""
    slices = (processes.read(f"{processes.PROC}/{stat.pid}/schedstat") or b"").split()[2:]
    return ProcessSnapshot(now_ns, pause, stat.image, stat.cpu_ticks + sum(map(int, slices)))
