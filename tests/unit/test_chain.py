"""Chains of made-up recordings of this process: when each begins and ends, and what becomes of its record."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from traces import Told, raw_recording, stack

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.collect import assembly
from profd.daemon.collect import chain as chain_module
from profd.daemon.collect.assembly import Span, Threads
from profd.daemon.collect.chain import REPORT_AFTER_FAILURES, StackChain
from profd.daemon.collect.pyspy import RawRecording, RecordingFailed
from profd.daemon.store.records import EventHappened, Identity, Record, RecordingTaken

LONG_S = 3600.0
DEADLINE_S = 30.0


class ManualClock:
    """A clock that ticks a millisecond at every look."""

    def __init__(self) -> None:
        self.at_ns = 1000 * SECOND_NS

    def now_ns(self) -> int:
        self.at_ns += MILLISECOND_NS
        return self.at_ns

    def wall_jump_ns(self) -> int:
        return 0


@dataclass
class FixedPace:
    hz: int = 1_000_000
    seconds: float = LONG_S

    def rate_hz(self) -> int:
        return self.hz

    def length_s(self) -> float:
        return self.seconds


class FakeRecording:
    """Samples from the start and ends when it is stopped, unless its studio says otherwise."""

    def __init__(self, studio: Studio, rate_hz: int, length_s: float, clock: Clock) -> None:
        self.rate_hz = rate_hz
        self.length_s = length_s
        self.begun_ns = clock.now_ns()
        self.sampling: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.abandoned = self.collected = False
        self.failure: str | None = None
        self.data: bytes | None = None
        self._clock = clock
        studio.direct(self)

    def stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(True)

    def abandon(self) -> None:
        self.abandoned = not self.collected

    async def collect(self) -> RawRecording:
        await self.ended
        self.collected = True
        if self.failure is not None:
            raise RecordingFailed(self.failure)
        length_us = (self._clock.now_ns() - self.begun_ns) // 1000
        told = Told([(0, stack("a"))], length_us, f"thread ({os.getpid()}): MainThread")
        raw = raw_recording(told, zero_ns=self.begun_ns)
        return raw if self.data is None else RawRecording(self.data, raw.zero_ns, 0, 1, 0, 0)


def sample(recording: FakeRecording) -> None:
    recording.sampling.set_result(True)


def fail(recording: FakeRecording) -> None:
    recording.failure = "Failed to find python version"
    recording.sampling.set_result(False)
    recording.ended.set_result(True)


def hang(recording: FakeRecording) -> None:
    assert not recording.sampling.done()


@dataclass
class Studio:
    """Where recordings are made; ``directions`` says how each goes on, the last one all that follow."""

    directions: list[Callable[[FakeRecording], None]] = field(default_factory=lambda: [sample])
    made: list[FakeRecording] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def direct(self, recording: FakeRecording) -> None:
        direction = self.directions.pop(0) if len(self.directions) > 1 else self.directions[0]
        self.made.append(recording)
        self._changed.set()
        direction(recording)

    def in_flight(self) -> list[FakeRecording]:
        return [recording for recording in self.made if not recording.ended.done()]

    async def until_made(self, count: int) -> FakeRecording:
        """Wait for so many recordings, and until the last one is taken on."""
        while len(self.made) < count:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), DEADLINE_S)
        for _ in range(100):
            await asyncio.sleep(0)
        return self.made[count - 1]


@dataclass
class Stage:
    """A chain on this process, running in a task."""

    studio: Studio
    records: list[Record] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    pace: FixedPace = field(default_factory=FixedPace)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def chain(self) -> StackChain:
        return StackChain("py-spy", this_process(), self.pace, self.clock, self.records.append)

    def begin(self, turn: asyncio.Semaphore | None = None) -> StackChain:
        chain = self.chain()
        self.tasks.append(asyncio.ensure_future(chain.run_in_turns(turn) if turn else chain.run()))
        return chain

    async def end(self) -> None:
        await asyncio.wait_for(asyncio.gather(*self.tasks), DEADLINE_S)

    @property
    def taken(self) -> list[RecordingTaken]:
        return [record for record in self.records if isinstance(record, RecordingTaken)]

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(record.kind, record.text) for record in self.records if isinstance(record, EventHappened)]


def this_process() -> Identity:
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    return Identity(stat.pid, stat.start_ticks)


def kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the target be gone from now on."""
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: False)


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    studio = Studio()
    monkeypatch.setattr(
        chain_module,
        "Recording",
        lambda executable, pid, rate_hz, length_s, clock: FakeRecording(studio, rate_hz, length_s, clock),
    )
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", LONG_S)
    monkeypatch.setattr(chain_module, "RETRY_FIRST_S", 0.0)
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", 0.0)
    stage = Stage(studio)
    yield stage
    assert all(task.done() for task in stage.tasks), "a chain still runs"
    assert not [made for made in studio.made if not made.collected and not made.abandoned], "a recording is left"


async def test_recordings_follow_each_other_without_gap_or_overlap(stage: Stage) -> None:
    chain = stage.begin()
    for count in (1, 2, 3, 4):
        await stage.studio.until_made(count)
        chain.hurry()
    await stage.studio.until_made(5)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 5
    for before, after in zip(stage.taken, stage.taken[1:], strict=False):
        assert before.end_ns == after.start_ns
    assert stage.said == []


async def test_the_one_before_ends_only_once_the_next_one_samples(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    assert not first.ended.done()
    second.sampling.set_result(True)
    await asyncio.wait_for(first.ended, DEADLINE_S)
    chain.stop()
    await stage.end()


async def test_the_next_one_overlaps_by_three_mean_distances(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    real = StackChain._wait

    async def wait(event: asyncio.Event, future: asyncio.Future[bool], timeout_s: float) -> None:
        waited.append(timeout_s)
        await real(event, future, timeout_s)

    monkeypatch.setattr(StackChain, "_wait", staticmethod(wait))
    stage.pace.hz = 50
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.stop()
    await stage.end()
    assert 3 / 50 in waited


async def test_a_recording_lasts_as_long_as_the_pace_says(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.002
    chain = stage.begin()
    await stage.studio.until_made(3)
    chain.stop()
    await stage.end()
    assert [made.length_s for made in stage.studio.made[:3]] == [0.001, 0.002, 0.002]


async def test_the_rate_counts_from_the_next_recording_on(stage: Stage) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    stage.pace.hz = 700
    chain.hurry()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert [record.rate_hz for record in stage.taken] == [1_000_000, 700]


async def test_stop_keeps_what_is_in_flight(stage: Stage) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 1
    assert stage.taken[0].samples == 100


async def test_stop_waits_for_no_one_who_has_not_begun(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert second.abandoned
    assert len(stage.taken) == 1


async def test_a_chain_stopped_before_it_began_does_nothing(stage: Stage) -> None:
    chain = stage.begin()
    chain.stop()
    await stage.end()
    assert stage.studio.made == []


async def test_a_process_that_is_gone_ends_the_chain(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.begin()
    first = await stage.studio.until_made(1)
    kill(monkeypatch)
    first.stop()
    await stage.end()
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_a_process_that_is_gone_when_a_recording_is_due_gets_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = stage.begin()
    await stage.studio.until_made(1)
    kill(monkeypatch)
    chain.hurry()
    await stage.end()
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_after_exec_recording_begins_anew_with_a_gap(stage: Stage) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.stop()  # what py-spy does when the interpreter goes from under it
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 2
    assert stage.taken[0].end_ns < stage.taken[1].start_ns


async def test_what_fails_at_first_is_tried_again(stage: Stage) -> None:
    stage.studio.directions = [fail, fail, sample]
    chain = stage.begin()
    await stage.studio.until_made(3)
    chain.stop()
    await stage.end()
    assert len(stage.taken) == 1
    assert stage.said == []


async def test_what_fails_for_long_is_said_once(stage: Stage) -> None:
    stage.studio.directions = [fail]
    chain = stage.begin()
    await stage.studio.until_made(REPORT_AFTER_FAILURES + 3)
    chain.stop()
    await stage.end()
    assert stage.said == [("error", "its stacks cannot be read: Failed to find python version")]
    assert all(made.collected for made in stage.studio.made)


async def test_what_works_again_and_fails_again_is_said_again(stage: Stage) -> None:
    round_of_failures = [fail] * REPORT_AFTER_FAILURES
    stage.studio.directions = [*round_of_failures, sample, *round_of_failures, sample]
    chain = stage.begin()
    works = await stage.studio.until_made(REPORT_AFTER_FAILURES + 1)
    works.stop()
    await stage.studio.until_made(2 * REPORT_AFTER_FAILURES + 2)
    chain.stop()
    await stage.end()
    assert [kind for kind, _ in stage.said] == ["error", "error"]


async def test_a_py_spy_that_cannot_be_started_is_a_failure_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> FakeRecording:
        raise RecordingFailed("py-spy cannot be started (No such file or directory)")

    monkeypatch.setattr(chain_module, "Recording", refuse)
    chain = stage.begin()
    while not stage.said:
        await asyncio.sleep(0)
    chain.stop()
    await stage.end()
    assert stage.said[0][1].endswith("py-spy cannot be started (No such file or directory)")


async def test_one_that_never_samples_is_abandoned(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "START_TIMEOUT_S", 0.01)
    stage.studio.directions = [hang, sample]
    chain = stage.begin()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert stage.studio.made[0].abandoned
    assert len(stage.taken) == 1


async def test_a_hurry_does_not_make_failing_quicker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "RETRY_FIRST_S", LONG_S)
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    await stage.studio.until_made(2)
    assert len(stage.studio.made) == 2
    chain.stop()
    await stage.end()


@pytest.mark.parametrize("data", [b"", b"garbage", b"[]]"])
async def test_a_damaged_recording_is_a_loss_and_the_chain_goes_on(stage: Stage, data: bytes) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.data = data
    chain.hurry()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert [kind for kind, _ in stage.said] == ["loss"]
    assert len(stage.taken) == 1


async def test_a_lost_recording_is_said(stage: Stage) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.failure = "py-spy did not answer and was killed"
    chain.hurry()
    await stage.studio.until_made(2)
    chain.stop()
    await stage.end()
    assert stage.said == [("loss", "a recording was lost: py-spy did not answer and was killed")]


async def test_a_chain_that_is_cancelled_abandons_what_is_in_flight(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    await stage.studio.until_made(2)
    stage.tasks[0].cancel()
    await asyncio.wait(stage.tasks)
    assert [made.abandoned for made in stage.studio.made] == [True, True]


async def test_a_record_that_cannot_be_taken_breaks_the_chain_and_leaves_nothing(stage: Stage) -> None:
    def refuse(record: Record) -> None:
        raise RuntimeError("no")

    chain = StackChain("py-spy", this_process(), stage.pace, stage.clock, refuse)
    task = asyncio.ensure_future(chain.run())
    await stage.studio.until_made(1)
    chain.hurry()
    await asyncio.wait({task}, timeout=DEADLINE_S)
    assert isinstance(task.exception(), RuntimeError)
    assert [made.collected or made.abandoned for made in stage.studio.made] == [True, True]


async def test_threads_are_looked_at_while_the_process_is_there(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Threads] = []
    real = assembly.assemble

    def assemble(
        raw: RawRecording, identity: Identity, rate_hz: int, keep: Span, threads: Threads | None = None
    ) -> RecordingTaken:
        assert threads is not None
        seen.append(threads)
        return real(raw, identity, rate_hz, keep, threads)

    monkeypatch.setattr(assembly, "assemble", assemble)
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    kill(monkeypatch)
    second.stop()
    await stage.end()
    assert [threads.is_current for threads in seen] == [True, False]
    assert seen[0].ids == seen[1].ids == processes.thread_ids(os.getpid())


async def test_in_turns_one_is_recorded_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.001
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn) for _ in range(3)]
    for count in range(1, 8):
        await stage.studio.until_made(count)
        assert len(stage.studio.in_flight()) <= 1
    for chain in chains:
        chain.stop()
    await stage.end()
    assert len(stage.taken) >= 7


async def test_in_turns_stopping_starts_nothing_more(stage: Stage) -> None:
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn) for _ in range(16)]
    await stage.studio.until_made(1)
    for chain in chains:
        chain.stop()
    await stage.end()
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_in_turns_who_is_gone_leaves_the_turn_to_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = asyncio.Semaphore(1)
    stage.begin(turn)
    stage.begin(turn)
    first = await stage.studio.until_made(1)
    kill(monkeypatch)
    first.stop()
    stage.pace.seconds = 0.0
    first.length_s = 0.0
    await stage.end()
    assert len(stage.studio.made) == 1


async def test_in_turns_a_hurry_serves_the_one_in_flight(stage: Stage) -> None:
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn), stage.begin(turn)]
    first = await stage.studio.until_made(1)
    first.length_s = 0.0
    for chain in chains:
        chain.hurry()
    second = await stage.studio.until_made(2)
    assert first.collected
    assert not second.ended.done()
    for chain in chains:
        chain.stop()
    await stage.end()


async def test_in_turns_failing_holds_no_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail, sample]
    turn = asyncio.Semaphore(1)
    chains = [stage.begin(turn), stage.begin(turn)]
    second = await stage.studio.until_made(2)
    assert not second.ended.done()
    for chain in chains:
        chain.stop()
    await stage.end()
