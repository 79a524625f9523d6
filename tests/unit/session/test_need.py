"""The rate that a run needs: full while something is new, low while all is as before."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.clocks import StoppedClock

from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session.need import CHANGE_S, FIRST_S, Need
from profd.daemon.store.records import (
    STEP_COUNT,
    Frame,
    Identity,
    Interval,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    RecordingTaken,
    ThreadTimeline,
)

FULL_HZ, STEADY_HZ = RECORDING.full_rate_hz, RECORDING.steady_rate_hz
TRAINING, OTHER = Identity(7, 1), Identity(8, 1)
STEADY = {"forward": 50, "backward": 30, "load": 20}


class Run:
    """A made-up run: each recording has samples of functions, all called by ``main``."""

    def __init__(self, rate_hz: int | None = None) -> None:
        self.clock = StoppedClock()
        self.need = Need(self.clock, rate_hz)

    def record(
        self, samples: dict[str, int], seconds: float = 9.0, identity: Identity = TRAINING
    ) -> int:
        """Let a recording end now; return the rate that is needed from then on."""
        begun_ns = self.clock.now_ns()
        self.clock.advance(seconds)
        each_ns = (self.clock.now_ns() - begun_ns) // sum(samples.values())
        intervals = [
            Interval(begun_ns, each_ns * count, number, count)
            for number, count in enumerate(samples.values())
        ]
        stacks = [(Frame("main", "a.py", 9), Frame(name, "a.py", 5)) for name in samples]
        main = ThreadTimeline(identity.pid, "", True, tuple(intervals))
        idle = ThreadTimeline(99, "", False, (Interval(begun_ns, 1, 0, 1),))
        counts = sum(samples.values()), 0, 0, 0, 0
        about = identity, begun_ns, self.clock.now_ns(), FULL_HZ
        self.need.take(RecordingTaken(*about, *counts, tuple(stacks), (main, idle)))
        return self.need.rate_hz()

    def read(self, name: str, value: float, seconds: float = 5.0) -> int:
        self.clock.advance(seconds)
        point = Point(name, value, TRAINING)
        self.need.take(PointsTaken(self.clock.now_ns(), (point,)))
        return self.need.rate_hz()

    def settle(self) -> None:
        """Let the first minute go by, in which steps take a second and memory grows to 1 GB."""
        for second in range(0, int(FIRST_S) + 9, 9):
            self.record(STEADY, 4.0)
            self.read("rss_bytes", min(1e9, 4e8 * (second + 1)), 2.5)
            self.read(STEP_COUNT, second, 2.5)
        assert self.need.rate_hz() == STEADY_HZ


@pytest.fixture
def run() -> Run:
    run = Run()
    run.settle()
    return run


def test_the_first_minute_has_the_full_rate() -> None:
    run = Run()
    assert run.need.rate_hz() == FULL_HZ  # before there is a sample
    assert {run.record(STEADY, 4.5) for _ in range(13)} == {FULL_HZ}
    run.clock.advance(FIRST_S)
    assert run.need.rate_hz() == STEADY_HZ


NEWS: dict[str, Callable[[Run], object]] = {
    "a function that was not seen": lambda run: run.record({"evaluate": 40, **STEADY}),
    "a larger share": lambda run: run.record({**STEADY, "load": 80}),
    "slower steps": lambda run: run.read(STEP_COUNT, 65, 9),
    "faster steps": lambda run: run.read(STEP_COUNT, 90, 1),
    "more memory": lambda run: run.read("rss_bytes", 1.3e9),
    "another process that trains": lambda run: run.record(STEADY, identity=OTHER),
}


@pytest.mark.parametrize("what", NEWS)
def test_what_was_not_seen_before_is_sampled_at_the_full_rate_until_it_is_known(
    run: Run, what: str
) -> None:
    NEWS[what](run)
    assert run.need.rate_hz() == FULL_HZ
    run.clock.advance(FIRST_S if what.startswith("another") else CHANGE_S)
    assert run.need.rate_hz() == STEADY_HZ
    NEWS[what](run)  # now it is known
    assert run.need.rate_hz() == STEADY_HZ


@pytest.mark.parametrize("name", ["is_watched", "is_suspected"])
def test_the_rate_is_full_while_somebody_watches_or_the_run_may_hang(run: Run, name: str) -> None:
    for value in (True, False):
        setattr(run.need, name, value)
        assert run.need.rate_hz() == (FULL_HZ if value else STEADY_HZ)


def test_smaller_changes_and_memory_of_helpers_are_nothing_new(run: Run) -> None:
    assert run.record({**STEADY, "load": 30}) == STEADY_HZ
    assert run.record({"evaluate": 20}) == STEADY_HZ  # too few samples to say so
    run.need.take(PointsTaken(run.clock.now_ns(), (Point("rss_bytes", 9e9, OTHER),)))
    assert run.need.rate_hz() == STEADY_HZ


def test_what_is_new_is_said_with_its_share(run: Run) -> None:
    run.record({"evaluate": 100, **STEADY})
    assert run.need.why == "evaluate takes 50 % of the time, at most 0 % before"


def test_a_process_is_new_if_there_are_more_than_ever(run: Run) -> None:
    def start(pid: int) -> int:
        about = Identity(pid, 1), None, ("python",), "helper", None, None, "3.11"
        run.need.take(ProcessSeen(*about, run.clock.now_ns()))
        return run.need.rate_hz()

    assert {start(pid) for pid in range(10, 14)} == {FULL_HZ}
    run.clock.advance(CHANGE_S)
    for pid in range(10, 14):
        run.need.take(ProcessEnded(Identity(pid, 1), run.clock.now_ns()))
    assert {start(pid) for pid in range(20, 24)} == {STEADY_HZ}  # the workers of the next epoch
    assert start(24) == FULL_HZ


def test_a_process_that_ended_is_forgotten(run: Run) -> None:
    run.need.take(ProcessEnded(TRAINING, run.clock.now_ns()))
    assert run.record(STEADY) == FULL_HZ


def test_a_rate_that_was_asked_for_stays() -> None:
    run = Run(rate_hz=50)
    assert {run.record(STEADY) for _ in range(20)} == {50}
    run.need.wanted_hz = 60
    assert run.need.rate_hz() == 60


def test_chance_is_hardly_ever_new(run: Run) -> None:
    """An hour of recordings of a steady training, and one whose evaluation comes each minute."""
    chance = random.Random(7)

    def draw(shares: dict[str, int]) -> dict[str, int]:
        drawn = chance.choices(list(shares), list(shares.values()), k=9 * STEADY_HZ)
        return {name: drawn.count(name) for name in sorted(set(drawn))}

    run.record({"evaluate": 180})
    run.clock.advance(CHANGE_S)
    others = {**STEADY, "evaluate": 50}
    rates = [run.record(draw(others if turn % 7 == 0 else STEADY)) for turn in range(400)]
    assert rates.count(FULL_HZ) <= 4
