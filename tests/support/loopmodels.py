"""Programs that only count, read as py-spy would read them, in no time: the truth about their steps is known."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from profd.daemon.clock import SECOND_NS
from profd.daemon.collect.steps.cadence import Cadence
from profd.daemon.collect.steps.counter import CounterReading, IntegerFrame, Place
from profd.daemon.collect.steps.odometer import Count
from profd.daemon.collect.steps.reader import StepCounter
from profd.daemon.store.records import Frame, Interval

TRAIN = Place(1, "train", "train.py")
ADVANCE = Place(3, "advance", "train.py")
ERROR_NS = 30_000_000
COST_S = 0.016
RECORDED_S = 2.0
LOOP_LINE = 21
STEPPING = (Frame("train", "/home/ada/train.py", LOOP_LINE), Frame("step", "/home/ada/train.py", 7))
PAUSING = (Frame("train", "/home/ada/train.py", 30), Frame("evaluate", "/home/ada/train.py", 9))
BOOTED_S = 50_000.0

Integers = Mapping[Place, Mapping[str, int]]


class Program(Protocol):
    """A program that steps."""

    def integers(self, at_s: float) -> Integers:
        """Return what is on the stack at a time."""
        ...

    def steps(self, at_s: float) -> float:
        """Return how many steps it has made by then, the one that it is in as a fraction."""
        ...


def is_pausing(program: Program, at_s: float) -> bool:
    """Say whether a program makes no step at a time."""
    return program.steps(at_s + 1e-9) == program.steps(at_s)


def reading_at(
    at_s: float,
    integers: Integers,
    error_ns: int = ERROR_NS,
    declared: Collection[str] = (),
    current: Collection[str] = (),
) -> CounterReading:
    """Return what a reading says that was taken then, where the source declares some variables to be counters."""
    frames = tuple(
        IntegerFrame(
            place,
            20 + place.depth,
            dict(values),
            frozenset(declared) & values.keys(),
            frozenset(current) & values.keys(),
        )
        for place, values in integers.items()
    )
    return CounterReading(int(at_s * SECOND_NS), error_ns, BOOTED_S + at_s, 0, frames)


def history(
    *values: Mapping[str, int], every_s: float = 0.5, place: Place = TRAIN, declared: Collection[str] = ()
) -> list[CounterReading]:
    """Return readings of one frame, at nearly equal distances."""
    chance = random.Random(1)
    times = [number * every_s + chance.uniform(0, 0.3) * every_s for number in range(len(values))]
    return [reading_at(at_s, {place: shown}, declared=declared) for at_s, shown in zip(times, values, strict=True)]


def chance_readings(
    variables: int, most: int, seed: int, *, every_s: float = 0.5, declared: Collection[str] = ()
) -> list[CounterReading]:
    """Return forty readings of variables ``v0``, ``v1`` and so on of loops that are much faster than the readings."""
    chance = random.Random(seed)
    shown = [{f"v{number}": chance.randrange(most) for number in range(variables)} for _ in range(40)]
    return history(*shown, every_s=every_s, declared=declared)


class Watched:
    """A program watched for a while: the counts, and when it was read."""

    def __init__(
        self,
        program: Program,
        seconds: float,
        seed: int = 0,
        *,
        cost_s: float = COST_S,
        declared: Collection[str] = (),
        rate_hz: int = 0,
    ) -> None:
        chance = random.Random(seed)
        self.counter = StepCounter()
        self.program = program
        self.counts: list[Count] = []
        self.cadence = Cadence(chance)
        self.read_s: list[float] = []
        sampler = _Sampler(program, rate_hz, chance) if rate_hz else None
        at_s = chance.random()
        while at_s < seconds:
            if sampler:
                sampler.sample(self.counter, at_s)
            truly_s = at_s + chance.uniform(-1, 1) * ERROR_NS / SECOND_NS
            integers = program.integers(truly_s)
            current = () if is_pausing(program, truly_s) else declared
            self.counts += self.counter.take(reading_at(at_s, integers, declared=declared, current=current))
            self.read_s.append(at_s)
            self.cadence.spend(int(at_s * SECOND_NS), int(cost_s * SECOND_NS))
            at_s += self.cadence.pause_s(self.counter.wish())
        self.counts += self.counter.take(reading_at(seconds, program.integers(seconds), declared=declared))
        self.counts += self.counter.rest()

    def steps_per_s(self) -> float:
        """Return the rate between the first and the last count."""
        first, last = self.counts[0], self.counts[-1]
        return (last.steps - first.steps) * SECOND_NS / (last.at_ns - first.at_ns)

    def true_steps_per_s(self) -> float:
        """Return what that should be."""
        first, last = self.counts[0].at_ns, self.counts[-1].at_ns
        steps = self.program.steps(last / SECOND_NS) - self.program.steps(first / SECOND_NS)
        return steps * SECOND_NS / (last - first)

    def error_per_s(self) -> float:
        """Return by how much it may be wrong."""
        first, last = self.counts[0], self.counts[-1]
        return (1 + first.error_steps + last.error_steps) * SECOND_NS / (last.at_ns - first.at_ns)


class _Sampler:
    """Samples a program at Poisson intervals, and tells what it saw some seconds at a time."""

    def __init__(self, program: Program, rate_hz: int, chance: random.Random) -> None:
        self._program = program
        self._rate_hz = rate_hz
        self._chance = chance
        self._at_s = self._told_s = 0.0

    def sample(self, counter: StepCounter, until_s: float) -> None:
        """Tell what was seen by a time, whole recordings of it."""
        while self._told_s + RECORDED_S <= until_s:
            self._told_s += RECORDED_S
            counter.take_samples(tuple(self._recorded()), (STEPPING, PAUSING), self._rate_hz, _is_stepping)

    def _recorded(self) -> Iterator[Interval]:
        while self._at_s < self._told_s:
            wait_s = self._chance.expovariate(self._rate_hz)
            pauses = is_pausing(self._program, self._at_s)
            yield Interval(int(self._at_s * SECOND_NS), int(wait_s * SECOND_NS), int(pauses), 1)
            self._at_s += wait_s


def _is_stepping(frame: Frame, _counter: str) -> bool:
    return frame.line == LOOP_LINE


@dataclass(frozen=True)
class Plain:
    """``for i in range(...)``."""

    per_s: float
    start: int = 0
    name: str = "i"

    def integers(self, at_s: float) -> Integers:
        return {TRAIN: {"n": 1_000_000, self.name: self.start + math.floor(self.steps(at_s))}}

    def steps(self, at_s: float) -> float:
        return at_s * self.per_s


@dataclass(frozen=True)
class Nested:
    """Epochs of ``batches``, with a pause after each for which the counter stands still.

    With ``waits`` the pause is that for the first batch of an epoch, which has begun by then.
    """

    per_s: float
    batches: int
    pause_s: float = 0.0
    shows_epoch: bool = True
    epoch: str = "epoch"
    waits: bool = False

    def integers(self, at_s: float) -> Integers:
        epoch, batch = self._place(at_s)
        shown = min(math.floor(batch), self.batches - 1)
        epoch += self.waits and batch >= self.batches
        return {TRAIN: ({self.epoch: epoch} if self.shows_epoch else {}) | {"i": shown}}

    def steps(self, at_s: float) -> float:
        epoch, batch = self._place(at_s)
        return epoch * self.batches + min(batch, self.batches)

    def _place(self, at_s: float) -> tuple[int, float]:
        epoch, into_s = divmod(at_s, self.batches / self.per_s + self.pause_s)
        return int(epoch), into_s * self.per_s


@dataclass(frozen=True)
class Torn:
    """A program that moves so fast that every seventh reading or so is torn."""

    program: Plain
    chance: random.Random

    def integers(self, at_s: float) -> Integers:
        shown = self.program.integers(at_s)
        if self.chance.random() > 1 / 7:
            return shown
        return {TRAIN: {**shown[TRAIN], "i": self.chance.choice([0, 1, 3, 128, 140_082_642_923_312])}}

    def steps(self, at_s: float) -> float:
        return self.program.steps(at_s)


@dataclass(frozen=True)
class Slowing:
    """A loop of hundreds of steps a second that takes ever longer, and half of whose readings are torn.

    What they show is what was put where the counter had been: powers of two, other counts, nothing.
    """

    per_s: float
    chance: random.Random

    def integers(self, at_s: float) -> Integers:
        value: int | None = math.floor(self.steps(at_s))
        if self.chance.random() < 1 / 2:
            value = self.chance.choice([65536, 65536, 262144, 524288, 8192, 18872, 487772452, 9655109, 371, 4717, None])
        return {TRAIN: {"total": 0, **({} if value is None else {"i": value})}}

    def steps(self, at_s: float) -> float:
        return self.per_s * 40 * math.log1p(at_s / 40)


@dataclass(frozen=True)
class CalledAnew:
    """Epochs of a loop whose counter is a local of a function that is called anew each step, as Lightning's is.

    No loop around it shows a counter. A seventh of a step it waits for its batch, and has none yet.
    """

    per_s: float
    batches: int

    def integers(self, at_s: float) -> Integers:
        batch = math.floor(self.steps(at_s)) % self.batches
        if self.steps(at_s) % 1 < 1 / 7:
            return {Place(5, "_load", "train.py"): {"_": batch}}
        return {ADVANCE: {"batch_idx": batch}, Place(4, "optimize", "train.py"): {"batch_idx": batch}}

    def steps(self, at_s: float) -> float:
        return at_s * self.per_s
