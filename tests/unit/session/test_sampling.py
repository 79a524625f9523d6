"""Who is sampled how, with made-up chains."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.clocks import StoppedClock

from profd.daemon.clock import Clock
from profd.daemon.session import sampling
from profd.daemon.session.budget import Governor
from profd.daemon.session.sampling import LENGTH_S, WATCHED_LENGTH_S, Sampling
from profd.daemon.stacks.chain import Pace
from profd.daemon.stacks.torn import Source
from profd.daemon.store.records import EventHappened, Identity, Record
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member


class FakeChain:
    """Runs until it is stopped, or breaks when it is told to."""

    def __init__(
        self,
        executable: str,
        identity: Identity,
        pace: Pace,
        source: Source,
        clock: Clock,
        put: Callable[[Record], object],
    ) -> None:
        self.identity = identity
        self.pace = pace
        self.source = source
        self.turn: asyncio.Semaphore | None = None
        self.hurries = 0
        self.is_deaf = False
        self.was_cancelled = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        try:
            await self._over
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    async def run_in_turns(self, turn: asyncio.Semaphore) -> None:
        self.turn = turn
        await self.run()

    def hurry(self) -> None:
        self.hurries += 1

    def stop(self) -> None:
        if not self.is_deaf and not self._over.done():
            self._over.set_result(None)

    def fail(self) -> None:
        self._over.set_exception(RuntimeError("no"))


class Studio:
    """A sampling whose chains can be looked at."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sampling = Sampling("py-spy", Governor(100, 0.1), StoppedClock(), self.records.append)
        self.chains: list[FakeChain] = []

    async def begin(self, role: str, pid: int = 7) -> FakeChain:
        self.sampling.begin(Member(Identity(pid, 1), None, (), role, None, None, "3.11", 1))
        await asyncio.sleep(0)
        return self.chains[-1]


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> Studio:
    made = Studio()

    def make(
        executable: str,
        identity: Identity,
        pace: Pace,
        source: Source,
        clock: Clock,
        put: Callable[[Record], object],
    ) -> FakeChain:
        made.chains.append(FakeChain(executable, identity, pace, source, clock, put))
        return made.chains[-1]

    monkeypatch.setattr(sampling, "StackChain", make)
    return made


async def test_processes_that_see_the_same_files_share_what_is_known_of_them(studio: Studio) -> None:
    nobody = 2**22  # no process has such an id: what it would see is what we see
    main, worker = await studio.begin(roles.MAIN, nobody + 1), await studio.begin(roles.WORKER, nobody + 2)
    assert main.source is worker.source


async def test_main_processes_are_sampled_without_a_gap_and_others_in_one_turn(studio: Studio) -> None:
    main, launcher = await studio.begin(roles.MAIN, 1), await studio.begin(roles.LAUNCHER, 2)
    helper, worker = await studio.begin(roles.HELPER, 3), await studio.begin(roles.WORKER, 4)
    assert (main.turn, launcher.turn) == (None, None)
    assert helper.turn is worker.turn is not None
    await studio.sampling.close()


async def test_rate_is_the_governors_and_a_part_of_it_for_others(studio: Studio) -> None:
    main, worker = await studio.begin(roles.MAIN, 1), await studio.begin(roles.WORKER, 2)
    assert (main.pace.rate_hz(), worker.pace.rate_hz()) == (100, 20)
    studio.sampling.governor.rate_hz = 20
    assert (main.pace.rate_hz(), worker.pace.rate_hz()) == (20, 5)
    studio.sampling.governor.rate_hz = 3
    assert (main.pace.rate_hz(), worker.pace.rate_hz()) == (3, 3)
    await studio.sampling.close()


async def test_turns_are_half_of_the_time_and_less_as_the_rate_falls(studio: Studio) -> None:
    worker = await studio.begin(roles.WORKER)
    assert worker.pace.rest_ratio() == 1
    studio.sampling.governor.rate_hz = 50
    assert worker.pace.rest_ratio() == 3
    studio.sampling.governor.rate_hz = 5
    assert worker.pace.rest_ratio() == pytest.approx(9)
    await studio.sampling.close()


async def test_recordings_are_short_while_someone_watches(studio: Studio) -> None:
    main = await studio.begin(roles.MAIN)
    assert main.pace.length_s() == LENGTH_S - 0.03
    studio.sampling.is_watched = True
    assert main.pace.length_s() == WATCHED_LENGTH_S - 0.03
    studio.sampling.hurry()
    assert main.hurries == 1
    await studio.sampling.close()


async def test_the_overlap_is_part_of_what_a_recording_may_last(studio: Studio) -> None:
    main = await studio.begin(roles.MAIN)
    studio.sampling.governor.rate_hz = 5
    assert main.pace.length_s() == LENGTH_S - 0.6
    studio.sampling.governor.rate_hz = 1
    studio.sampling.is_watched = True
    assert main.pace.length_s() == 0.5
    await studio.sampling.close()


async def test_a_member_is_sampled_once_and_again_after_it_was_ended(studio: Studio) -> None:
    first = await studio.begin(roles.MAIN)
    assert await studio.begin(roles.MAIN) is first
    member = Member(first.identity, None, (), roles.MAIN, None, None, None, 1)
    studio.sampling.end(member)
    for _ in range(3):
        await asyncio.sleep(0)
    studio.sampling.end(member)
    assert await studio.begin(roles.MAIN) is not first
    await studio.sampling.close()


async def test_a_chain_that_breaks_is_said_and_breaks_no_other(
    studio: Studio, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, other = await studio.begin(roles.MAIN, 1), await studio.begin(roles.MAIN, 2)
    broken.fail()
    for _ in range(3):
        await asyncio.sleep(0)
    (said,) = studio.records
    assert isinstance(said, EventHappened)
    assert (said.kind, said.identity) == ("error", broken.identity)
    assert "RuntimeError" in capsys.readouterr().err
    studio.sampling.hurry()
    assert (broken.hurries, other.hurries) == (0, 1)
    await studio.sampling.close()


async def test_closing_breaks_off_who_does_not_end(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CLOSING_TIMEOUT_S", 0.01)
    deaf, other = await studio.begin(roles.MAIN, 1), await studio.begin(roles.MAIN, 2)
    deaf.is_deaf = True
    await studio.sampling.close()
    assert (deaf.was_cancelled, other.was_cancelled) == (True, False)
    await studio.sampling.close()
