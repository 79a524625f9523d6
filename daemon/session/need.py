"""How many samples a second a run needs now.

After a minute at the full rate the shares of a run are known. From then on few samples do, until
something is seen that was not seen before. It is sampled at the full rate until it is known, too.
Phases that take turns are known after their first turn.
"""

from __future__ import annotations

import math
from collections import Counter

from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.records import (
    STEP_COUNT,
    Identity,
    Interval,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    Record,
    RecordingTaken,
)
from profd.daemon.units import percent

FIRST_S = 60.0
"""Any share of a process is known to 1.8 points after this time: by 6,000 samples."""
CHANGE_S = 15.0
"""Any share since a change is known to 3.6 points after this time: by 1,500 samples."""
_FEWEST = 50
"""A recording of fewer samples says nothing new."""
_MORE, _SIGMAS = 0.05, 3.0
"""A function is new if its share exceeds all before by this much, and by what chance does."""
_FACTOR = 1.25
"""A value is new if it leaves the range of those before by this factor."""
Function = tuple[str, str]


class Need:
    """What is known of a run, learned from its records; any thread may hand them over."""

    def __init__(self, clock: Clock, rate_hz: int | None) -> None:
        """Take the rate that the user wants; None if it is to follow the need."""
        self.is_watched = self.is_suspected = False
        self.why = "the run begins"
        """What was new last."""
        self._clock, self._until_ns = clock, 0
        self.wanted_hz = rate_hz
        """The rate that somebody asked for, if anybody did."""
        self._shares: dict[Identity, dict[Function, float]] = {}
        """The largest share of a recording that each function of a process had."""
        self._ranges: dict[tuple[str, Identity | None], tuple[float, float]] = {}
        self._steps: dict[Identity | None, tuple[int, float]] = {}
        self._processes, self._most_processes = set[Identity](), 0

    @property
    def full_hz(self) -> int:
        return self.wanted_hz or RECORDING.full_rate_hz

    @property
    def is_steady(self) -> bool:
        """Whether all is as before, and nobody watches."""
        is_new = not self._shares or self._clock.now_ns() < self._until_ns
        return not (is_new or self.is_watched or self.is_suspected)

    def rate_hz(self) -> int:
        """Return the samples a second that the main processes need."""
        is_low = self.wanted_hz is None and self.is_steady
        return RECORDING.steady_rate_hz if is_low else self.full_hz

    def take(self, record: Record) -> None:
        """Learn from a record, and find out whether it shows what is new."""
        if isinstance(record, RecordingTaken):
            self._take_recording(record)
        elif isinstance(record, ProcessSeen):
            self._take_process(record)
        elif isinstance(record, ProcessEnded):
            self._forget(record.identity)
        elif isinstance(record, PointsTaken):
            for point in record.points:
                if point.name == "rss_bytes" and point.identity in self._shares:
                    self._take_value("memory", point.identity, point.value)
                elif point.name == STEP_COUNT:
                    self._take_steps(point.identity, record.at_ns, point.value)

    def _take_process(self, process: ProcessSeen) -> None:
        """Heed a process if there are more of them than ever: workers come anew with each epoch."""
        self._processes.add(process.identity)
        if len(self._processes) > self._most_processes:
            self._most_processes = len(self._processes)
            self._renew(CHANGE_S, f"pid {process.identity.pid} is new")

    def _forget(self, identity: Identity) -> None:
        self._processes.discard(identity)
        self._shares.pop(identity, None)
        self._steps.pop(identity, None)
        for name in ("memory", "the time of a step"):
            self._ranges.pop((name, identity), None)

    def _take_recording(self, recording: RecordingTaken) -> None:
        """Compare how a process that trains spends its time with its recordings before."""
        led = [each for one in recording.threads if one.is_main for each in one.intervals]
        samples, whole_ns = sum(one.samples for one in led), sum(one.duration_ns for one in led)
        if samples < _FEWEST:
            return
        if recording.identity not in self._shares:
            self._renew(FIRST_S, f"pid {recording.identity.pid} is new")
        known = self._shares.setdefault(recording.identity, {})
        newest, most = 0.0, ""
        for function, spent_ns in _times(recording, led).items():
            share, before = spent_ns / whole_ns, known.get(function, 0.0)
            chance = _SIGMAS * math.sqrt(share * (1 - share) / samples)
            if share - before - chance > max(newest, _MORE):
                newest, most = share - before - chance, _in_words(function, share, before)
            known[function] = max(share, before)
        if most:
            self._renew(CHANGE_S, most)

    def _take_steps(self, identity: Identity | None, at_ns: int, count: float) -> None:
        before_ns, before = self._steps.setdefault(identity, (at_ns, count))
        if count > before:
            self._take_value("the time of a step", identity, (at_ns - before_ns) / (count - before))
        if count != before:
            self._steps[identity] = at_ns, count

    def _take_value(self, name: str, identity: Identity | None, value: float) -> None:
        lowest, highest = self._ranges.get((name, identity), (value, value))
        self._ranges[name, identity] = min(lowest, value), max(highest, value)
        if not lowest / _FACTOR <= value <= highest * _FACTOR:
            self._renew(CHANGE_S, f"{name} is {'more' if value > highest else 'less'} than before")

    def _renew(self, seconds: float, why: str) -> None:
        until_ns = self._clock.now_ns() + int(seconds * SECOND_NS)
        if until_ns > self._until_ns:
            self._until_ns, self.why = until_ns, why


def _times(recording: RecordingTaken, led: list[Interval]) -> Counter[Function]:
    """Return the nanoseconds of each function, those that it calls included."""
    stacks = Counter[int]()
    for one in led:
        stacks[one.stack] += one.duration_ns
    times = Counter[Function]()
    for number, spent_ns in stacks.items():
        for function in {frame[:2] for frame in recording.stacks[number]}:
            times[function] += spent_ns
    return times


def _in_words(function: Function, share: float, before: float) -> str:
    return f"{function[0]} takes {percent(share)} of the time, at most {percent(before)} before"
