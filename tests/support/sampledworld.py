"""A world in which a program, profd and py-spy are stopped, fail and change, and what profd learns
of it.

All of it is made up from a seed, and in memory: what py-spy writes, its log, what the kernel
counts, and what the session sees. What happened in truth is known, so that a test can compare.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from profd.daemon.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from profd.daemon.stacks import assembly
from profd.daemon.stacks.pyspy import FailedRead
from profd.daemon.stacks.reads import (
    EXEC,
    FROZEN,
    STOPPED,
    SUSPENDED,
    Account,
    ProcessSnapshot,
    Pulse,
)
from profd.daemon.store.records import GapFound, Identity, RecordingTaken, Stack
from profd.daemon.timerange import TimeRange
from support.traces import MAIN_TID, ThreadTrace, raw_recording, stack

TARGET = Identity(MAIN_TID, 1000)
BEGIN_NS = 1_795_176_000 * SECOND_NS
PROFD, SAMPLER, FAILING, DEEP = (
    "profd and py-spy stopped",
    "py-spy stopped",
    "reads fail",
    "a stack too deep",
)
LOOK_NS, LENGTH_NS, OVERLAP_NS = 250 * MILLISECOND_NS, 4 * SECOND_NS, 30 * MILLISECOND_NS
_STOPS_PROGRAM, _STOPS_PROFD = (STOPPED, FROZEN, SUSPENDED), (PROFD, SUSPENDED)
_STOPS_SAMPLER = (PROFD, SUSPENDED, SAMPLER)


class Episode(NamedTuple):
    """Something that keeps py-spy from reading a program that runs, for a while.

    An exec ends at the next recording.
    """

    kind: str
    from_ns: int
    to_ns: int


@dataclass
class World:
    """A program that goes on to its next function every ``dwell_ns`` of its own time.

    0: it stands in one.
    """

    episodes: Sequence[Episode]
    dwell_ns: int
    rate_hz: int
    length_ns: int
    chance: random.Random
    records: list[RecordingTaken] = field(default_factory=list)
    gaps: list[GapFound] = field(default_factory=list)
    samples_ns: list[int] = field(default_factory=list)
    """When py-spy has read the program, in order."""

    def during(self, at_ns: int, *kinds: str) -> Episode | None:
        return next(
            (
                one
                for one in self.episodes
                if one.kind in kinds and one.from_ns <= at_ns < one.to_ns
            ),
            None,
        )

    def record(self) -> None:
        """Record all of it as a chain does: looks, recordings that follow each other, and the
        account of both.
        """
        account = Account(TARGET, self.gaps.append)
        begins_ns, at_ns = [0], LENGTH_NS
        while at_ns < self.length_ns:
            begins_ns.append(at_ns)
            at_ns += LENGTH_NS
        # After an exec the recording in flight is replaced, once that was seen.
        execs_ns = [one.to_ns for one in self.episodes if one.kind == EXEC]
        begins_ns = sorted({self._when_py_spy_begins(at_ns) for at_ns in [*begins_ns, *execs_ns]})
        cuts_ns = [*begins_ns[1:], self.length_ns]
        looks = self._looks([*cuts_ns, *(max(at_ns - OVERLAP_NS, 0) for at_ns in begins_ns)])
        for begin_ns, cut_ns in zip(begins_ns, cuts_ns, strict=True):
            for look in looks:
                if look.at_ns > BEGIN_NS + cut_ns:
                    break
                account.look(look)
            looks = [look for look in looks if look.at_ns > BEGIN_NS + cut_ns]
            self._recording(account, max(begin_ns - OVERLAP_NS, 0), begin_ns, cut_ns)

    def _when_py_spy_begins(self, at_ns: int) -> int:
        episode = self.during(at_ns, *_STOPS_SAMPLER, EXEC)
        return episode.to_ns if episode else at_ns

    def _looks(self, cuts_ns: Sequence[int]) -> list[ProcessSnapshot]:
        found = []
        for at_ns in sorted({*range(0, self.length_ns, LOOK_NS), *cuts_ns}):
            if not self.during(at_ns, *_STOPS_PROFD):
                paused = self.during(at_ns, STOPPED, FROZEN)
                image = 1 + sum(one.kind == EXEC and one.from_ns <= at_ns for one in self.episodes)
                runs = self._position_ns(at_ns) * 200 // SECOND_NS
                found.append(
                    ProcessSnapshot(BEGIN_NS + at_ns, paused.kind if paused else "", image, runs)
                )
        return found

    def _position_ns(self, at_ns: int) -> int:
        """Return for how long the program has run by a time."""
        stops = (
            (one.from_ns, min(one.to_ns, at_ns))
            for one in self.episodes
            if one.kind in _STOPS_PROGRAM
        )
        return at_ns - sum(max(to_ns - from_ns, 0) for from_ns, to_ns in stops)

    def _stack_at(self, at_ns: int) -> Stack:
        place = self._position_ns(at_ns) // self.dwell_ns % 3 if self.dwell_ns else 0
        return stack(("load", "forward", "update")[place])

    def _reads(self, from_ns: int, to_ns: int) -> Iterator[tuple[int, bool, bool]]:
        """Yield when py-spy reads, whether it slept before, and whether that succeeds."""
        due_ns = at_ns = float(from_ns)
        while True:
            due_ns += self.chance.expovariate(self.rate_hz) * SECOND_NS
            slept, at_ns = due_ns > at_ns, max(due_ns, at_ns)
            stopped = self.during(int(at_ns), *_STOPS_SAMPLER)
            if stopped:  # then it makes up for all that it has missed
                at_ns = float(stopped.to_ns)
            if at_ns >= to_ns:
                return
            is_deep = self.during(int(at_ns), DEEP)
            changed = any(
                one.kind == EXEC and from_ns <= one.from_ns <= at_ns for one in self.episodes
            )
            yield int(at_ns), slept, not (is_deep or changed or self.during(int(at_ns), FAILING))
            at_ns += 75 * MILLISECOND_NS if is_deep else 100 * MICROSECOND_NS

    def _recording(self, account: Account, from_ns: int, keep_ns: int, to_ns: int) -> None:
        changes: list[tuple[int, Stack]] = []
        failed: list[FailedRead] = []
        pulses, sleeps, busy_ns, samples = [Pulse(BEGIN_NS + from_ns, 0, 0)], 0, 0, 0
        pulse_ns = from_ns - from_ns % LOOK_NS + LOOK_NS
        for at_ns, slept, succeeds in self._reads(from_ns, to_ns):
            while pulse_ns <= at_ns:
                if not self.during(pulse_ns, *_STOPS_PROFD):
                    pulses.append(Pulse(BEGIN_NS + pulse_ns, sleeps, busy_ns))
                pulse_ns += LOOK_NS
            sleeps += slept
            if not succeeds:
                busy_ns += 75 * MILLISECOND_NS if self.during(at_ns, DEEP) else 100 * MICROSECOND_NS
                failed.append(FailedRead(BEGIN_NS + at_ns, None, "Failed to call get_stack_trace"))
                continue
            samples, busy_ns = samples + 1, busy_ns + 100 * MICROSECOND_NS
            self.samples_ns.append(at_ns)
            seen = self._stack_at(at_ns)
            if not changes or changes[-1][1] != seen:
                changes.append(((at_ns - from_ns) // 1000, seen))
        pulses.append(Pulse(BEGIN_NS + to_ns, sleeps, busy_ns))
        trace = [ThreadTrace(changes, (to_ns - from_ns) // 1000)] if changes else []
        raw = raw_recording(*trace, samples=samples, zero_ns=BEGIN_NS + from_ns)
        spells = tuple(account.spells(raw.zero_ns))
        raw = msgspec.structs.replace(
            raw, failed=tuple(failed), pulses=tuple(pulses), spells=spells
        )
        keep = TimeRange(BEGIN_NS + keep_ns, BEGIN_NS + to_ns)
        records = assembly.assemble(raw, TARGET, self.rate_hz, keep)
        read = [(one.start_ns, one.end_ns) for one in records if one.end_ns > one.start_ns]
        account.take(read, SECOND_NS // self.rate_hz, [(one.at_ns, one.why) for one in failed])
        self.records += records
