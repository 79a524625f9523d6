"""Made-up recordings for tests of what chains them: a studio makes them, a stage runs chains on
this process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, Clock
from profd.daemon.stacks import chain as chain_module
from profd.daemon.stacks.chain import Allowance, SamplingPace, StackChain
from profd.daemon.stacks.pyspy import RawRecording, RecordingFailed
from profd.daemon.stacks.turns import Turns
from profd.daemon.store.records import EventHappened, Record, RecordingTaken
from support.clocks import StoppedClock
from support.synthetic import identity_of
from support.traces import ThreadTrace, raw_recording, stack
from support.waiting import DEADLINE_S, settled

LONG_S = 3600.0


class ManualClock(StoppedClock):
    """A clock that ticks a millisecond at every look."""

    def now_ns(self) -> int:
        self.at_ns += MILLISECOND_NS
        return self.at_ns


@dataclass
class FixedPace:
    hz: int = 1_000_000
    seconds: float = LONG_S
    rest_ratio: float = 1.0
    is_unknown: bool = False

    def __call__(self) -> SamplingPace:
        return SamplingPace(self.hz, self.seconds, self.rest_ratio, self.is_unknown)


class FakeRecording:
    """Samples from the start and ends when it is stopped, unless its studio says otherwise."""

    def __init__(self, studio: Studio, rate_hz: int, length_s: float, clock: Clock) -> None:
        self.rate_hz = rate_hz
        self.length_s = length_s
        self.begun_ns = clock.now_ns()
        self.sampling: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.abandoned = self.collected = False
        self.cores: frozenset[int] | None = None
        self.failure: str | None = None
        self.data: bytes | None = None
        self.errors = self.looks = 0
        self.is_failing, self.has_one = False, True
        self.taken_s = self.taken_cores = 0.0
        self._clock = clock
        studio.direct(self)

    def run_on(self, cores: frozenset[int]) -> None:
        self.cores = cores

    def look(self) -> None:
        self.looks += 1

    def cpu_s(self) -> float:
        return self.taken_s

    def sampling_cpu_s(self) -> float:
        return self.taken_s

    def has_sample(self) -> bool:
        return self.has_one

    def cost_cores(self, length_s: float) -> float:
        return self.taken_cores

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
        thread = ThreadTrace([(0, stack("a"))], length_us, f"thread ({os.getpid()}): MainThread")
        raw = msgspec.structs.replace(
            raw_recording(thread, zero_ns=self.begun_ns), errors=self.errors
        )
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
    """Where recordings are made.

    ``directions`` says how each goes on, the last one all that follow.
    """

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
        await settled()
        return self.made[count - 1]


@dataclass
class Stage:
    """A chain on this process, running in a task."""

    studio: Studio
    records: list[Record] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    pace: FixedPace = field(default_factory=FixedPace)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    allowance: Allowance = field(default_factory=Allowance)

    def begin(self, turns: Turns | None = None) -> StackChain:
        put, failed = self.records.append, self.failures.append
        about = self.clock, put, failed, lambda pid: "", lambda: self.allowance
        chain = StackChain("py-spy", identity_of(), self.pace, None, *about)
        self.tasks.append(
            asyncio.ensure_future(chain.run_in_turns(turns) if turns else chain.run())
        )
        return chain

    async def allow(self, **parts: float) -> None:
        """Change parts of the allowance, and let the chain go on by it."""
        self.allowance = self.allowance._replace(**parts)
        await settled()

    async def end(self, *chains: StackChain) -> None:
        """Stop some chains, and wait until all have ended."""
        for chain in chains:
            chain.stop()
        await asyncio.wait_for(asyncio.gather(*self.tasks), DEADLINE_S)

    @property
    def taken(self) -> list[RecordingTaken]:
        return [record for record in self.records if isinstance(record, RecordingTaken)]

    @property
    def said(self) -> list[tuple[str, str]]:
        return [
            (record.kind, record.text)
            for record in self.records
            if isinstance(record, EventHappened)
        ]


def kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the target be gone from now on."""
    monkeypatch.setattr(processes, "is_running", lambda pid, start_ticks: False)


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    studio = Studio()
    monkeypatch.setattr(
        chain_module,
        "Recording",
        lambda executable, pid, rate_hz, length_s, clock: FakeRecording(
            studio, rate_hz, length_s, clock
        ),
    )
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", LONG_S)
    monkeypatch.setattr(chain_module, "RETRY_FIRST_S", 0.0)
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", 0.0)
    stage = Stage(studio)
    yield stage
    assert all(task.done() for task in stage.tasks), "a chain still runs"
    assert not [made for made in studio.made if not made.collected and not made.abandoned], (
        "a recording is left"
    )
